"""`assay runs copy`: copy runs to another store."""

import sys
from argparse import Namespace

from assay.errors import ConfigError
from assay.stats import format_plural
from assay.store import CopyProgress, Store, copy_run, copy_sessions

from .output import has_cursor, print_over_line, print_report, sanitize_to_line


def copy_runs(store: Store, args: Namespace) -> int:
    """Copy each run with everything that was recorded of it. Exit status 0."""
    if args.all == bool(args.run):
        raise ConfigError(
            "`assay runs copy` takes the ids of runs, or --all",
            hint="pass one of the two; `assay runs` lists the ids",
        )
    # Oldest first, in the order in which a store lists them. All ids are looked up first: a typo
    # in the last one must not leave half of them copied.
    found = (row.id for row in reversed(store.runs())) if args.all else args.run
    ids = list(dict.fromkeys(store.run(wanted).id for wanted in found))
    lines: list[str] = []
    copied: list[dict[str, object]] = []
    sessions = None
    with Store.open(args.to) as other:
        for run_id in ids:
            done = copy_run(store, other, run_id, watch=CopyDisplay(run_id))
            counts = {
                "failed attempt": done.attempts,
                "training step": done.steps,
                "label": done.labels,
                "session": done.sessions,
            }
            more = [format_plural(count, noun) for noun, count in counts.items() if count]
            new = ", ".join([format_plural(done.results, "result"), *more])
            lines.append(
                f"{sanitize_to_line(run_id)}: copied {new}; "
                f"{format_plural(done.present, 'result')} already present"
            )
            copied.append({"id": run_id, **vars(done)})
        if args.all and (sessions := copy_sessions(store, other)):
            lines.append(f"copied {format_plural(sessions, 'session')} of no run")
        where = other.where
    lines.append(f"from {store.where} to {where}")
    plain = {"store": store.where, "to": where, "copied": copied, "other_sessions": sessions}
    print_report(args, lines, plain)
    return 0


class CopyDisplay:
    """A line on stderr that changes in a terminal; nothing elsewhere."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def __call__(self, progress: CopyProgress) -> None:
        if has_cursor(sys.stderr):
            done = progress.results + progress.present
            text = f"{self._run_id}: {done}/{progress.total} results"
            print_over_line(text, is_last=done >= progress.total)
