"""Scoring the samples of a file or a run as a recorded run, for commands that call no agent."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from assay.datasets import SampleStream
from assay.runner import EvalConfig, EvalReport, Progress, RescoreOptions, Stop, evaluate, rescore
from assay.scorers import ScoreFunction
from assay.store import Store

from .progress_bar import choose_display
from .signals import run_until_stopped


@dataclass(frozen=True)
class ScoringRequest:
    """The samples to score: those of a stream, else those of a run."""

    run_id: str
    stream: SampleStream | None
    scorer: ScoreFunction
    options: RescoreOptions
    quiet: bool = False
    add_cost: Callable[[Progress], Progress] = lambda progress: progress
    """Puts the scorer's own cost into the progress."""


def score_recorded(
    request: ScoringRequest, store: Store, within: AbstractAsyncContextManager[object] | None = None
) -> EvalReport:
    """Score every sample, with a progress display. A signal stops the run, which can be resumed.

    `within` is open while samples are scored, in the event loop of the scorer.
    """
    stop, options = Stop(), request.options
    with choose_display(quiet=request.quiet) as display:

        def watch(progress: Progress) -> None:
            display.watch(request.add_cost(progress))

        async def score_all() -> EvalReport:
            async with within or nullcontext():
                if request.stream is None:
                    return await rescore(
                        request.run_id,
                        request.scorer,
                        options=options,
                        store=store,
                        watch=watch,
                        stop=stop,
                    )
                config = EvalConfig(
                    score_fn=request.scorer,
                    score_failures=options.score_failures,
                    name=options.name or "score",
                    concurrency=options.concurrency,
                )
                resume = options.resume
                return await evaluate(
                    request.stream, config, store=store, resume=resume, watch=watch, stop=stop
                )

        return run_until_stopped(score_all, stop, display)
