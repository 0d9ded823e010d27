"""Scoring the samples of a file or a run as a recorded run, for commands that call no agent."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from assay.datasets import SampleStream, SkippedRows
from assay.runner import (
    EvalConfig,
    EvalReport,
    Progress,
    RescoreOptions,
    Shard,
    Stop,
    create_run_id,
    evaluate,
    rescore,
    rescore_shard,
    run_shard,
)
from assay.scorers import ScoreFunction
from assay.store import Store

from .eval_workers import WorkerOutcome, WorkerPool, WorkerTask
from .progress_bar import Display, choose_display
from .run_tracking import RunTrackingStore
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

    def build_config(self) -> EvalConfig:
        """Return the configuration that scores the samples of the stream."""
        return EvalConfig(
            score_fn=self.scorer,
            score_failures=self.options.score_failures,
            name=self.options.name or "score",
            concurrency=self.options.concurrency,
            engine=self.options.engine,
        )


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
                return await evaluate(
                    request.stream,
                    request.build_config(),
                    store=store,
                    resume=options.resume,
                    watch=watch,
                    stop=stop,
                )

        return run_until_stopped(score_all, stop, display)


def score_in_workers(
    request: ScoringRequest, task: WorkerTask, store: RunTrackingStore, count: int
) -> tuple[EvalReport, list[WorkerOutcome]]:
    """Score every sample in so many processes, each of which builds the request by itself."""
    stop, options = Stop(), request.options
    run_id = create_run_id(options.name or "score")
    if options.resume is not None:
        run_id = store.run(str(options.resume)).id
    with choose_display(quiet=request.quiet) as display:
        pool = WorkerPool(task, count, store=store, display=display, stop=stop)
        pool.add_cost = request.add_cost
        report = run_until_stopped(lambda: pool.execute(run_id), stop, display)
    if request.stream is not None and report.skipped is not None:
        # The workers have read the file.
        request.stream.skipped = report.skipped
    return report, pool.outcomes


def score_recorded_shard(
    request: ScoringRequest,
    shard: Shard,
    store: Store,
    within: AbstractAsyncContextManager[object] | None = None,
) -> SkippedRows | None:
    """Score one part of the samples, in a worker process. Return the rows that were skipped."""
    stop = Stop()

    async def score_part() -> SkippedRows | None:
        async with within or nullcontext():
            if request.stream is None:
                await rescore_shard(
                    request.run_id,
                    request.scorer,
                    shard,
                    store=store,
                    options=request.options,
                    stop=stop,
                )
                return None
            config = request.build_config()
            report = await run_shard(request.stream, config, shard, store=store, stop=stop)
            return report.skipped

    return run_until_stopped(score_part, stop, Display())
