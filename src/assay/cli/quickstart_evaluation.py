"""One evaluation of `assay quickstart`, with its progress."""

import asyncio
from argparse import Namespace

from assay.datasets import Source
from assay.runner import EvalConfig, EvalReport, Stop, evaluate
from assay.store import Store

from .progress_bar import choose_display
from .signals import exit_interrupted, stop_on_signals, tick_periodically


def evaluate_with_display(
    rows: Source, config: EvalConfig, *, args: Namespace, store: Store, words: str
) -> EvalReport:
    """Evaluate and return the report; an interruption ends the process with status 130."""
    with choose_display(quiet=args.quiet) as display:
        display.print_line(words)

        async def run() -> EvalReport:
            stop = Stop(grace_s=5.0)
            with stop_on_signals(stop, display):
                async with tick_periodically(display):
                    return await evaluate(rows, config, store=store, watch=display.watch, stop=stop)

        report = asyncio.run(run())
        if report.interrupted:
            again = " --train" if args.train else ""
            display.print_line(f"interrupted; start again with: assay quickstart{again}")
    if report.interrupted:
        exit_interrupted()
    return report
