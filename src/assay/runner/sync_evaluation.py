"""`evaluate_sync`: an evaluation for scripts and notebooks, without `await`."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path

from assay.datasets import SampleStream, Source
from assay.store import Store

from .engines.ray_settings import EngineRef
from .eval_config import EvalConfig
from .eval_report import EvalReport
from .evaluation import Resume, evaluate
from .run_progress import ProgressCallback, Stop


def evaluate_sync(  # noqa: PLR0913  # those of `evaluate`
    dataset: Source | SampleStream,
    config: EvalConfig,
    *,
    store: Store | str | Path | None = None,
    engine: EngineRef | None = None,
    resume: Resume | str | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> EvalReport:
    """Call `evaluate` and wait for its report.

    Works inside a running event loop too, as in a notebook: the evaluation then has a thread and an
    event loop of its own, and the caller's loop waits. Ctrl-C cancels the evaluation; recorded
    samples are kept.
    """
    where = partial(evaluate, dataset, config, store=store, engine=engine)
    run = partial(where, resume=resume, watch=watch, stop=stop)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    tasks: list[asyncio.Task[EvalReport]] = []

    async def run_as_task() -> EvalReport:
        tasks.append(asyncio.ensure_future(run()))
        return await tasks[0]

    with ThreadPoolExecutor(1, thread_name_prefix="evaluate_sync") as threads:
        future = threads.submit(copy_context().run, asyncio.run, run_as_task())
        try:
            return future.result()
        except KeyboardInterrupt:
            # Raised here, in the main thread; the evaluation would not notice.
            for task in tasks:
                task.get_loop().call_soon_threadsafe(task.cancel)
            raise
