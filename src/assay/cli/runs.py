"""`assay runs`: list, delete, prune, import, copy, back up, record and wait for runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from assay.errors import AssayError, ConfigError
from assay.runner import build_run_label, build_session_label, describe_run
from assay.stats import format_plural
from assay.store import RunRow, Store
from assay.types import Sample, build_label

from .arguments import (
    add_count,
    add_flag,
    add_renamed_option,
    add_report_options,
    parse_moment,
    parse_seconds,
    parse_whole_number,
)
from .output import cut, format_field, measure_text_width, print_report, sanitize_to_line
from .resume import build_next_command
from .store_option import add_store_option, find_store_location, open_store

_SESSION_PLACE_WIDTH = 30
# Shorter titles are unreadable; the line is cut as a whole instead.
_MIN_TITLE_WIDTH = 10
_MIN_RUN_LABEL_WIDTH = 10
# The columns of the list with their formats.
_RUNS_COLUMNS = {
    "status": "<12",
    "results": ">13",
    "judged": ">9",
    "mean": ">9",
    "failed": ">8",
    "cost": ">10",
    "started": "",
}
_NARROW_COLUMNS = {"status": "<12", "results": ">9", "mean": ">7", "failed": ">8", "started": ""}
_RUNS_HEADS = {name: name for name in _RUNS_COLUMNS} | {"started": "  started (UTC)   "}
_RUNS_ACTIONS = {
    "delete": "delete recorded runs by id",
    "prune": "delete old runs; lists them unless --yes is given",
    "import": "record the results of a bundle",
    "backup": "copy the store to a file while it is in use",
    "record": "write the model calls of a run to a file that later runs can replay",
    "wait": "wait until all shards of a run are done, and print its report",
    "copy": "copy runs to another store",
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_count(parser, "--limit", "list the newest N runs", default=20)
    add_store_option(parser)
    add_report_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    delete, prune, import_, backup, record, wait, copy = (
        actions.add_parser(name, help=does, description=f"{does.capitalize()}.", allow_abbrev=False)
        for name, does in _RUNS_ACTIONS.items()
    )
    delete.add_argument("run", nargs="+", help="run id, unique prefix, or `latest`")
    prune.add_argument(
        "--older-than",
        type=parse_moment,
        metavar="WHEN",
        help="delete runs started before 2026-02-14, or more than 30d ago",
    )
    prune.add_argument(
        "--keep",
        type=parse_whole_number,
        metavar="N",
        help="keep the newest N runs of each name, regardless of age",
    )
    prune.add_argument("--name", help="delete only runs with this name")
    add_flag(prune, "--yes", "delete the runs instead of listing them")
    for each in (delete, prune):
        add_flag(each, "--compact", "rewrite the store's file to free disk space")
    import_.add_argument("file", type=Path, metavar="FILE.tar.gz", help="bundle to import")
    backup.add_argument(
        "file", type=Path, metavar="FILE", help="file for the copy; it must not exist yet"
    )
    record.add_argument(
        "run", metavar="RUN", help="run id, unique prefix, or `latest`; or a session of a gateway"
    )
    record.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="file to write"
    )
    add_flag(record, "--force", "overwrite the file if it exists")
    _configure_wait(wait)
    _configure_copy(copy)
    for each in (delete, prune, import_, backup, record, wait, copy):
        add_store_option(each, action=True)
        add_report_options(each, action=True)


def _configure_wait(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("run", help="run id, unique prefix, or `latest`")
    add_renamed_option(
        parser,
        "--timeout-s",
        "--timeout",
        type=parse_seconds,
        metavar="SECONDS",
        help="give up after this time; until then the run need not exist (default: wait for ever)",
    )


def _configure_copy(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("run", nargs="*", help="run id, unique prefix, or `latest`")
    add_flag(parser, "--all", "copy all runs and sessions of the store")
    parser.add_argument(
        "--to",
        required=True,
        metavar="PATH|URL",
        help="file or postgresql:// URL of the other store; created if it is absent",
    )


def main(args: Namespace) -> int:
    """List the runs, two or three lines each, or run the action.

    Exit status: 0; of `wait` 3 if samples failed or the time is over.
    """
    action = getattr(args, "action", None)
    if action == "import":
        # The only action that creates a store.
        _import_runs(args)
        return 0
    if action == "prune" and args.older_than is None and args.keep is None:
        raise ConfigError(
            "`assay runs prune` needs a rule for old runs",
            hint="pass --older-than 30d, --keep 10, or both",
        )
    with open_store(args) as store:
        if action == "delete":
            # All are looked up first: a typo in the last id must not leave half of them deleted.
            named = dict.fromkeys(store.run(wanted).id for wanted in args.run)
            _delete_runs(store, [store.run(run_id).row() for run_id in named], args)
        elif action == "prune":
            _prune_runs(store, args)
        elif action == "wait":
            # Imported here: listing runs needs none of it.
            from .runs_wait import wait_for_run

            return wait_for_run(store, args)
        elif action == "copy":
            from .runs_copy import copy_runs

            return copy_runs(store, args)
        elif action == "backup":
            store.backup(args.file)
            plain = {"store": store.where, "backup": str(args.file)}
            print_report(args, [f"copied {store.where} to {args.file}"], plain)
        elif action == "record":
            _record_calls(store, args)
        else:
            _list_runs(store, args)
    return 0


def _record_calls(store: Store, args: Namespace) -> None:
    # Imported here: listing runs needs none of it.
    from assay.runner import record_calls

    from .sample_input import refuse_to_overwrite

    if args.output.suffix != ".jsonl":
        raise ConfigError(f"{args.output} is not a .jsonl file", hint="name it such as calls.jsonl")
    refuse_to_overwrite(args.output, ())
    if args.output.exists() and not args.force:
        raise ConfigError(f"{args.output} already exists; pass --force to overwrite it")
    header = record_calls(store, args.run, args.output)
    counts = f"{format_plural(header.calls, 'call')} of {format_plural(header.samples, 'sample')}"
    plain = {"file": str(args.output), **header.model_dump()}
    print_report(args, [f"wrote {counts} to {args.output}"], plain)


def _list_runs(store: Store, args: Namespace) -> None:
    # One more than is shown, to detect whether there are more.
    found = store.runs(limit=args.limit + 1)
    shown, more = found[: args.limit], len(found) > args.limit
    sessions = _load_first_sessions(store, shown)
    lines = format_runs(shown, sessions)
    if more:
        lines.append("older runs are not shown; pass --limit to show more")
    if not shown:
        lines = ["the store has no runs yet; `assay eval FILE.py` records one"]
    labels = {
        run_id: {"first_session": asdict(label)}
        for run_id, sample in sessions.items()
        if (label := build_session_label(sample)) is not None
    }
    runs = [describe_run(row) | labels.get(row.id, {}) for row in shown]
    print_report(args, lines, {"store": store.where, "runs": runs, "more": more})


def _delete_runs(store: Store, rows: list[RunRow], args: Namespace) -> None:
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


def _prune_runs(store: Store, args: Namespace) -> None:
    chosen = choose_runs(store.runs(), older_than=args.older_than, keep=args.keep, name=args.name)
    if args.yes:
        _delete_runs(store, chosen, args)
        return
    lines = [
        f"{row.id}  {sanitize_to_line(row.spec.name)}: {row.totals.recorded} results"
        for row in chosen
    ]
    lines.append(f"{len(chosen)} runs would be deleted; pass --yes to delete them")
    print_report(args, lines, {"store": store.where, "would_delete": [row.id for row in chosen]})


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


def _import_runs(args: Namespace) -> None:
    """Record the samples of a bundle; its code is not run."""
    if not args.file.is_file():
        raise ConfigError(f"the bundle {args.file} does not exist")
    from assay.datasets import Bundle

    from .bundle_import import import_bundle

    bundle = Bundle.open(args.file)
    with Store.open(find_store_location(args)) as store:
        ids, where = import_bundle(bundle, store), store.where
    lines = [format_field("run", each) for each in ids]
    lines += ["next:", *(f"  {build_next_command(args, 'show', each)}" for each in ids)]
    print_report(args, lines, {"store": where, "bundle": str(args.file), "runs": ids})


def _load_first_sessions(store: Store, rows: list[RunRow]) -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for row in rows:
        if not isinstance(row.spec.config.get("ingest"), str):
            continue
        # A run that is deleted meanwhile, or has a damaged body, is listed without its session.
        with suppress(AssayError, StopIteration):
            run = store.run(row.id)
            first = next(iter(run.results()))
            found[row.id] = next(iter(run.samples(sample_id=first.sample_id)))
    return found


def format_runs(
    rows: list[RunRow], sessions: Mapping[str, Sample] = MappingProxyType({})
) -> list[str]:
    """Format runs in lines that fit the terminal. Ids are never cut: users copy them.

    A run is one line where the terminal is wide enough, else its id and label come first. A run
    with a first session in `sessions` gets a further line.
    """
    width = measure_text_width()
    columns = (
        _RUNS_COLUMNS
        if width >= len(_format_cells(_RUNS_HEADS, _RUNS_COLUMNS))
        else _NARROW_COLUMNS
    )
    head = _format_cells(_RUNS_HEADS, columns)
    id_width = max((len(row.id) for row in rows), default=0)
    label_width = width - id_width - len(head) - 4
    is_wide = label_width >= _MIN_RUN_LABEL_WIDTH
    lines = [f"{'run':<{id_width}}  {head}  name" if is_wide else head.rstrip()]
    for row in rows:
        label, cells = build_run_label(row), _format_cells(_build_run_cells(row), columns)
        if is_wide:
            lines.append(f"{row.id:<{id_width}}  {cells}  {cut(label, label_width)}")
        else:
            room = width - len(row.id) - 2
            lines += [f"{row.id}  {cut(label, room)}" if room > 1 else row.id, cells]
        if row.id in sessions:
            others = row.totals.recorded - 1
            lines.append(_format_first_session(sessions[row.id], others=others, width=width))
    return lines


def _format_cells(cells: Mapping[str, str], columns: Mapping[str, str]) -> str:
    return "".join(f"{cells[name]:{spec}}" for name, spec in columns.items())


def _format_first_session(sample: Sample, *, others: int, width: int) -> str:
    label = build_session_label(sample)
    more = f" and {others} more" if others > 0 else ""
    folder = "" if label is None else cut(label.place, _SESSION_PLACE_WIDTH)
    start = " | ".join(filter(None, ("" if label is None else label.date, folder)))
    title = cut(build_label(sample), max(width - len(start) - len(more) - 5, _MIN_TITLE_WIDTH))
    return "  " + cut(" | ".join(filter(None, (start, title))) + more, width - 2)


def _build_run_cells(row: RunRow) -> dict[str, str]:
    totals = row.totals
    recorded = str(totals.recorded)
    if row.spec.total is not None:
        recorded += f"/{row.spec.total * row.spec.repeats}"
    cost = "unknown"
    if totals.cost_usd is not None:
        # A trailing `+` marks a lower bound: results of unknown cost and failed attempts add to it.
        whole = totals.cost_known == totals.recorded and not totals.attempts
        cost = f"${totals.cost_usd:.4f}" + ("" if whole else "+")
    return {
        "status": row.status,
        "results": recorded,
        "judged": str(totals.valid),
        "mean": "none" if totals.mean is None else f"{totals.mean:.3f}",
        "failed": str(totals.failed),
        "cost": cost,
        "started": f"  {row.spec.created_at[:16].replace('T', ' ')}",
    }
