"""`assay runs wait`: wait until all shards of a run are done, then print its report."""

import time
from argparse import Namespace
from contextlib import suppress

from assay.errors import ConfigError
from assay.runner import Progress, build_eval_report
from assay.store import Run, RunRow, Store

from .eval_workers import update_progress
from .exit_status import EXIT_INCONCLUSIVE
from .output import print_message, print_report
from .progress_bar import Display, choose_display
from .run_summary import EvalCommandReport
from .store_option import build_next_command

_POLL_S = 0.5


def wait_for_run(store: Store, args: Namespace) -> int:
    """Wait for a run. Exit status: 0 every sample was run, 3 some failed or the time is over."""
    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    with choose_display(quiet=args.json) as display:
        run = _wait_to_the_end(store, args.run, display, deadline)
    if run is None or run.status != "completed":
        print_message(_describe_unfinished(args, run))
        return EXIT_INCONCLUSIVE
    show = build_next_command(args, "show", run.id)
    report = EvalCommandReport.build(
        build_eval_report(run, store, reopen=store, interrupted=False),
        run,
        resume="start the shards again, with the same command",
        next=(show,),
    )
    print_report(args, report.lines(), report.plain())
    if report.problem is not None:
        print_message(report.problem)
    return report.exit_status


def _wait_to_the_end(
    store: Store, wanted: str, display: Display, deadline: float | None
) -> Run | None:
    """Return the run when it is completed or the time is over; None if it does not exist."""
    run: Run | None = None
    first: RunRow | None = None
    progress = Progress()
    while True:
        if run is None:
            # A run that no shard has created yet: without a deadline, a typo would wait for ever.
            with suppress(*(() if deadline is None else (ConfigError,))):
                run = store.run(wanted)
        if run is not None:
            row = run.row()
            if row.status == "completed" and row.holder is None:
                return run
            first = first or row
            update_progress(progress, first, row)
            display.watch(progress)
        if deadline is not None and time.monotonic() >= deadline:
            return run
        display.tick()
        time.sleep(_POLL_S)


def _describe_unfinished(args: Namespace, run: Run | None) -> str:
    if run is None:
        return f"run {args.run!r} does not exist after {args.timeout:g} s"
    row = run.row()
    total = "an unknown number" if row.spec.total is None else row.spec.total * row.spec.repeats
    holder = "no process executes it" if row.holder is None else f"it is in use by {row.holder}"
    return (
        f"run {row.id!r} is not completed after {args.timeout:g} s: {row.totals.recorded} of "
        f"{total} recorded; {holder}"
    )
