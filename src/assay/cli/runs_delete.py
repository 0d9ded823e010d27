"""`assay runs delete`: delete recorded runs by id."""

from argparse import SUPPRESS, ArgumentParser, Namespace

from assay.store import RunRow, Store

from .output import print_report, sanitize_to_line
from .store_option import add_store_option, open_store


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("run", nargs="+", help="run id, unique prefix, or `latest`")
    add_delete_options(parser)


def add_delete_options(parser: ArgumentParser) -> None:
    """Declare the options of every action that deletes runs."""
    parser.add_argument(
        "--compact", action="store_true", help="rewrite the store's file to free disk space"
    )
    add_store_option(parser, action=True)
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print one JSON object instead"
    )


def main(args: Namespace) -> int:
    """Delete the runs, or none of them if one does not exist. Exit status 0."""
    with open_store(args) as store:
        # All are looked up first: a typo in the last id must not leave half of them deleted.
        named = dict.fromkeys(store.run(wanted).id for wanted in args.run)
        rows = [store.run(run_id).row() for run_id in named]
        delete_runs(store, rows, args)
    return 0


def delete_runs(store: Store, rows: list[RunRow], args: Namespace) -> None:
    """Delete runs and print their ids."""
    deleted = [{"id": row.id, "results": store.delete_run(row.id)} for row in rows]
    # Not by default: rewriting a large file takes long and needs its size in free space.
    if args.compact:
        store.compact()
    lines = [
        f"deleted {row.id}  {sanitize_to_line(row.spec.name)}: {each['results']} results"
        for row, each in zip(rows, deleted, strict=True)
    ]
    plain = {"store": store.where, "deleted": deleted, "compacted": args.compact}
    print_report(args, lines or ["no run was deleted"], plain)
