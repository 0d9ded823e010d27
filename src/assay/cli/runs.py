"""`assay runs`: list, delete, prune, import and back up recorded runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from assay.errors import AssayError
from assay.store import RunRow, Store
from assay.types import Sample

from . import runs_backup, runs_delete, runs_import, runs_prune
from .labels import build_label, build_session_label
from .option_numbers import parse_count
from .output import cut, print_report
from .store_option import add_store_option, open_store

_RUNS_LINE_WIDTH = 80
_SESSION_PLACE_WIDTH = 30
# Shorter titles are unreadable; the line is cut as a whole instead.
_MIN_TITLE_WIDTH = 10
RUNS_ACTIONS = {
    "delete": (runs_delete, "delete recorded runs by id"),
    "prune": (runs_prune, "delete old runs; lists them unless --yes is given"),
    "import": (runs_import, "record the results of a bundle"),
    "backup": (runs_backup, "copy the store to a file while it is in use"),
}
"""Each action is a module of its own; without an action the runs are listed."""

_RUNS_COLUMNS = "{:<12}{:>13}{:>9}{:>9}{:>8}{:>10}  {}"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "--limit",
        type=parse_count,
        default=20,
        metavar="N",
        help="list the newest N runs (default: 20)",
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, (module, does) in RUNS_ACTIONS.items():
        action = actions.add_parser(
            name, help=does, description=f"{does.capitalize()}.", allow_abbrev=False
        )
        module.configure(action)


def main(args: Namespace) -> int:
    """List the runs, two or three lines each, or run the action. Exit status 0."""
    if getattr(args, "action", None) is not None:
        status: int = RUNS_ACTIONS[args.action][0].main(args)
        return status
    with open_store(args) as store:
        # One more than is shown, to detect whether there are more.
        found = store.runs(limit=args.limit + 1)
        where = store.where
        shown, more = found[: args.limit], len(found) > args.limit
        sessions = _load_first_sessions(store, shown)
    lines = format_runs(shown, sessions)
    if more:
        lines.append("older runs are not shown; pass --limit to show more")
    if not shown:
        lines = ["the store has no runs yet; `assay eval FILE.py` records one"]
    labels = {
        run_id: {"first_session": label.plain()}
        for run_id, sample in sessions.items()
        if (label := build_session_label(sample)) is not None
    }
    runs = [run_to_dict(row) | labels.get(row.id, {}) for row in shown]
    print_report(args, lines, {"store": where, "runs": runs, "more": more})
    return 0


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
    """Format runs in lines of at most 80 columns. Ids are never cut: users copy them.

    A run with a first session in `sessions` gets a third line.
    """
    heads = ("status", "results", "judged", "mean", "failed", "cost", "started (UTC)")
    lines = [_RUNS_COLUMNS.format(*heads)]
    for row in rows:
        room = _RUNS_LINE_WIDTH - len(row.id) - 2
        title = f"{row.id}  {cut(_build_run_label(row), room)}" if room > 1 else row.id
        lines += [title, _RUNS_COLUMNS.format(*_format_run_cells(row))]
        if row.id in sessions:
            lines.append(_format_first_session(sessions[row.id], others=row.totals.recorded - 1))
    return lines


def _format_first_session(sample: Sample, *, others: int) -> str:
    label = build_session_label(sample)
    more = f" and {others} more" if others > 0 else ""
    folder = "" if label is None else cut(label.place, _SESSION_PLACE_WIDTH)
    start = " | ".join(filter(None, ("" if label is None else label.date, folder)))
    title = cut(
        build_label(sample), max(_RUNS_LINE_WIDTH - len(start) - len(more) - 5, _MIN_TITLE_WIDTH)
    )
    return "  " + cut(" | ".join(filter(None, (start, title))) + more, _RUNS_LINE_WIDTH - 2)


def _build_run_label(row: RunRow) -> str:
    source = row.spec.config.get("ingest")
    if not isinstance(source, str):
        return row.spec.name
    count = row.totals.recorded
    return f"{count} {source} {'session' if count == 1 else 'sessions'} from {row.spec.dataset}"


def _format_run_cells(row: RunRow) -> tuple[str, ...]:
    totals = row.totals
    recorded = str(totals.recorded)
    if row.spec.total is not None:
        recorded += f"/{row.spec.total * row.spec.repeats}"
    return (
        row.status,
        recorded,
        str(totals.valid),
        "none" if totals.mean is None else f"{totals.mean:.3f}",
        str(totals.failed),
        _format_run_cost(row),
        row.spec.created_at[:16].replace("T", " "),
    )


def _format_run_cost(row: RunRow) -> str:
    # A trailing `+` marks a lower bound: results of unknown cost or failed attempts may add to it.
    totals = row.totals
    if totals.cost_usd is None:
        return "unknown"
    whole = totals.cost_known == totals.recorded and not totals.attempts
    return f"${totals.cost_usd:.4f}" + ("" if whole else "+")


def run_to_dict(row: RunRow) -> dict[str, Any]:
    """Return a run as plain values."""
    return {
        "id": row.id,
        "name": row.spec.name,
        "label": _build_run_label(row),
        "status": row.status,
        "dataset": row.spec.dataset,
        "dataset_changed": row.dataset_changed,
        "config": row.spec.config,
        "total": row.spec.total,
        "repeats": row.spec.repeats,
        "created_at": row.spec.created_at,
        "finished_at": row.finished_at,
        **asdict(row.totals),
    }
