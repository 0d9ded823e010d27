"""One evaluation of `assay quickstart`, shown while it goes on."""

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
    """The report of a whole evaluation; one that is interrupted ends the process with 130."""
    with choose_display(quiet=args.quiet) as display:
        display.say(words)

        async def evaluated() -> EvalReport:
            stop = Stop(grace_s=5.0)
            with stop_on_signals(stop, display):
                async with tick_periodically(display):
                    return await evaluate(rows, config, store=store, watch=display.watch, stop=stop)

        report = asyncio.run(evaluated())
        if report.interrupted:
            again = " --train" if args.train else ""
            display.say(f"interrupted; begin again with: assay quickstart{again}")
    if report.interrupted:
        exit_interrupted()
    return report
