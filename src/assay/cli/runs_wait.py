"""`assay runs wait`: wait until all shards of a run are done, then print its report."""

import time
from argparse import Namespace
from contextlib import suppress

from assay.errors import ConfigError, StoreError
from assay.runner import Progress, build_eval_report
from assay.store import Run, RunRow, Store

from .eval_workers import update_progress
from .exit_status import EXIT_INCONCLUSIVE
from .output import format_lines, print_message, print_report
from .progress_bar import Display, choose_display
from .resume import build_next_command
from .run_summary import EvalCommandReport, format_failures

_POLL_S = 0.5
# After this long without a process, the user may have forgotten to start the shards.
_IDLE_S = 10.0
_STORE_TIMEOUT_S = 60.0


def wait_for_run(store: Store, args: Namespace) -> int:
    """Wait for a run. Exit status: 0 every sample was run, 3 some failed or it did not end."""
    deadline = None if args.timeout_s is None else time.monotonic() + args.timeout_s
    with choose_display(quiet=args.json) as display:
        run = _wait_to_the_end(store, args.run, display, deadline)
    if run is None or run.status != "completed":
        print_message(_describe_unfinished(args, run))
        return EXIT_INCONCLUSIVE
    show = build_next_command(args, "show", run.id)
    report = EvalCommandReport(
        build_eval_report(run, store, reopen=store, interrupted=False),
        run.read_retries(),
        resume="start the shards again, with the same command",
        next=(show,),
        failures=tuple(run.failure_groups()),
    )
    print_report(args, report.lines(), report.plain())
    if report.problem is not None:
        print_message(report.problem)
    return report.exit_status


def _wait_to_the_end(
    store: Store, wanted: str, display: Display, deadline: float | None
) -> Run | None:
    """Return the run when it has ended or the time is over; None if it does not exist.

    A run that was aborted before may be started again: it is waited for until the deadline, if
    there is one. A run that is aborted meanwhile has ended.
    """
    run: Run | None = None
    first: RunRow | None = None
    progress = Progress()
    was_executed = deadline is None
    idle_since: float | None = None
    last_read = time.monotonic()
    while True:
        if run is None:
            # A run that no shard has created yet: without a deadline, a typo would wait for ever.
            with suppress(*(() if deadline is None else (ConfigError,))):
                run = store.run(wanted)
        row = None
        try:
            row = None if run is None else run.row()
            last_read = time.monotonic()
        except StoreError:
            # A server that restarts need not end the wait of a night.
            if time.monotonic() - last_read > _STORE_TIMEOUT_S:
                raise
        if row is not None:
            was_executed |= row.holder is not None
            if row.holder is not None:
                idle_since = None
            elif row.status == "completed" or (row.status == "failed" and was_executed):
                return run
            elif idle_since is None:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _IDLE_S:
                # Once each time: the shards may be queued, or they were stopped.
                display.print_line(f"no process executes run {row.id!r}; waiting for its shards")
                idle_since = float("inf")
            first = first or row
            update_progress(progress, first, row)
            display.watch(progress)
        if deadline is not None and time.monotonic() >= deadline:
            return run
        display.tick()
        time.sleep(_POLL_S)


def _describe_unfinished(args: Namespace, run: Run | None) -> str:
    if run is None:
        return f"run {args.run!r} does not exist after {args.timeout_s:g} s"
    row = run.row()
    total = "an unknown number" if row.spec.total is None else row.spec.total * row.spec.repeats
    recorded = f"{row.totals.recorded} of {total} recorded"
    if row.status == "failed":
        lines = [
            *format_failures(tuple(run.failure_groups()), row.totals.failed),
            f"run {row.id!r} was aborted: {recorded}; the output of its processes has the reason",
            "  hint: start the shards again, with the same command, to execute the missing samples",
        ]
        return format_lines(lines, None)
    holder = "no process executes it" if row.holder is None else f"it is in use by {row.holder}"
    return f"run {row.id!r} is not completed after {args.timeout_s:g} s: {recorded}; {holder}"
