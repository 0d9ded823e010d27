"""`assay runs copy`: copy runs to another store."""

import sys
from argparse import Namespace

from assay.store import CopyProgress, Store, copy_run

from .output import print_report, sanitize_to_line


def copy_runs(store: Store, args: Namespace) -> int:
    """Copy each run with its results, failed attempts, steps and labels. Exit status 0."""
    # All are looked up first: a typo in the last id must not leave half of them copied.
    ids = list(dict.fromkeys(store.run(wanted).id for wanted in args.run))
    lines: list[str] = []
    copied: list[dict[str, object]] = []
    with Store.open(args.to) as other:
        for run_id in ids:
            done = copy_run(store, other, run_id, watch=CopyDisplay(run_id))
            lines.append(
                f"{sanitize_to_line(run_id)}: {done.results} results and {done.attempts} failed "
                f"attempts copied, {done.present} were present"
            )
            copied.append({"id": run_id, **vars(done)})
        where = other.where
    lines.append(f"from {store.where} to {where}")
    print_report(args, lines, {"store": store.where, "to": where, "copied": copied})
    return 0


class CopyDisplay:
    """A line on stderr that changes in a terminal; nothing elsewhere."""

    def __init__(self, run_id: str) -> None:
        self._run_id = sanitize_to_line(run_id)

    def __call__(self, progress: CopyProgress) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            done = progress.results + progress.present
            end = "\n" if done >= progress.total else ""
            text = f"\r{self._run_id}: {done}/{progress.total} results{end}"
            print(text, end="", file=sys.stderr, flush=True)
