"""One evaluation of `assay quickstart`, shown while it goes on."""

import asyncio
from argparse import Namespace

from assay.datasets import Source
from assay.runner import EvalConfig, EvalReport, Stop, evaluate
from assay.store import Store

from .progress_bar import display_for
from .signals import leave_now, stopping_on_signals, ticking


def shown_evaluation(
    rows: Source, config: EvalConfig, *, args: Namespace, store: Store, words: str
) -> EvalReport:
    """The report of a whole evaluation; one that is interrupted ends the process with 130."""
    with display_for(quiet=args.quiet) as display:
        display.say(words)

        async def evaluated() -> EvalReport:
            stop = Stop(grace_s=5.0)
            with stopping_on_signals(stop, display):
                async with ticking(display):
                    return await evaluate(rows, config, store=store, watch=display.watch, stop=stop)

        report = asyncio.run(evaluated())
        if report.interrupted:
            again = " --train" if args.train else ""
            display.say(f"interrupted; begin again with: assay quickstart{again}")
    if report.interrupted:
        leave_now()
    return report
