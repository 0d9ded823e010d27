"""`evaluate_sync`: an evaluation for scripts and notebooks, without `await`."""

from functools import partial
from pathlib import Path

from assay.datasets import SampleStream, Source
from assay.store import Store

from .blocking_call import run_blocking
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
    return run_blocking(where(resume=resume, watch=watch, stop=stop), thread_name="evaluate_sync")
