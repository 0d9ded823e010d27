"""`assay runs prune`: delete old runs. Without `--yes` it only lists them."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from assay.errors import ConfigError
from assay.store import RunRow

from .dates import parse_moment
from .option_numbers import parse_whole_number
from .output import print_report, sanitize_to_line
from .runs_delete import add_delete_options, delete_runs
from .store_option import open_store


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "--older-than",
        type=parse_moment,
        metavar="WHEN",
        help="delete runs started before 2026-02-14, or more than 30d ago",
    )
    parser.add_argument(
        "--keep",
        type=parse_whole_number,
        metavar="N",
        help="keep the newest N runs of each name, regardless of age",
    )
    parser.add_argument("--name", help="delete only runs with this name")
    parser.add_argument(
        "--yes", action="store_true", help="delete the runs instead of listing them"
    )
    add_delete_options(parser)


def main(args: Namespace) -> int:
    """List or delete the chosen runs. Exit status 0."""
    if args.older_than is None and args.keep is None:
        raise ConfigError(
            "`assay runs prune` needs a rule for old runs",
            hint="pass --older-than 30d, --keep 10, or both",
        )
    with open_store(args) as store:
        chosen = choose_runs(
            store.runs(), older_than=args.older_than, keep=args.keep, name=args.name
        )
        if args.yes:
            delete_runs(store, chosen, args)
            return 0
        where = store.where
    lines = [
        f"{row.id}  {sanitize_to_line(row.spec.name)}: {row.totals.recorded} results"
        for row in chosen
    ]
    lines.append(f"{len(chosen)} runs would be deleted; pass --yes to delete them")
    print_report(args, lines, {"store": where, "would_delete": [row.id for row in chosen]})
    return 0


def choose_runs(
    rows: list[RunRow], *, older_than: datetime | None, keep: int | None, name: str | None
) -> list[RunRow]:
    """Choose the runs to delete. `rows` are newest first; runs in progress are never chosen."""
    chosen: list[RunRow] = []
    seen: dict[str, int] = {}
    for row in rows:
        if name is not None and row.spec.name != name:
            continue
        seen[row.spec.name] = seen.get(row.spec.name, 0) + 1
        if row.holder is not None or (keep is not None and seen[row.spec.name] <= keep):
            continue
        started = datetime.fromisoformat(row.spec.created_at)
        # Imported runs may have a time without an offset; the store itself writes UTC.
        started = started if started.tzinfo is not None else started.replace(tzinfo=UTC)
        if older_than is None or started < older_than:
            chosen.append(row)
    return chosen
