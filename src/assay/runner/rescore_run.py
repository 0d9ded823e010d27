"""`rescore`: apply another scorer to recorded rollouts. Calls no model."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from assay.errors import ConfigError
from assay.scorers import ScoreFunction
from assay.store import ResultRow, Run, RunSpec, Store, sample_key
from assay.types import Boundary, stable_id

from .eval_config import EvalConfig
from .eval_report import EvalReport, build_eval_report
from .evaluation import Resume, create_run_id, execute_jobs, start_or_resume
from .gc_tuning import reduce_gc_frequency
from .rollout_job import RolloutJob
from .run_progress import Progress, ProgressCallback, RunControl, Stop


@dataclass(frozen=True, kw_only=True)
class RescoreOptions:
    """Which rollouts to score again, and how."""

    name: str | None = None
    """Name of the new run. None: derived from the name of the old run."""

    keep_failed: bool = False
    """Record samples without a complete rollout as failures of the new run as well. False: the new
    run omits them."""

    score_failures: bool = False
    """Score samples without a complete rollout, too: `sample.failure` is then set."""

    max_samples: int | None = None
    """Rescore only this many samples, from the first, with all their repeats."""

    concurrency: int = 100
    """Samples in progress at once."""

    bounds: tuple[float, float] | None = None
    """The lowest and highest score possible, where scores are not within 0..1."""

    resume: Resume | str | None = None
    """Which rescoring run to resume. Results it already has are kept."""

    stops_early: bool = True
    """Whether to stop the new run when none of its samples succeeds."""


async def rescore(
    run_id: str,
    score_fn: ScoreFunction,
    *,
    store: Store | str | Path | None = None,
    options: RescoreOptions | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> EvalReport:
    """Score the rollouts of a run again, as a new run, including samples whose scorer failed.

    Results are recorded one by one, so that the new run can be resumed after `stop` or a crash.
    """
    options, stop = options or RescoreOptions(), stop or Stop()
    opened = store if isinstance(store, Store) else Store.open(store, create=False)
    try:
        old = opened.run(run_id)
        name = options.name or f"{old.spec.name} rescored"
        config = EvalConfig(
            score_fn=score_fn,
            score_failures=options.score_failures,
            name=name,
            concurrency=options.concurrency,
            bounds=options.bounds,
        )
        total = sum(1 for _ in _select_results(old, options))
        if not total:
            raise ConfigError(f"run {old.id!r} has no rollouts to score", where="rescore()")
        description = {**config.describe(), "rescored": old.id}
        spec = RunSpec(
            id=create_run_id(name),
            name=name,
            config=description,
            config_fingerprint=stable_id(description),
            dataset=old.spec.dataset,
            dataset_fingerprint=old.spec.dataset_fingerprint,
            total=total,
            repeats=old.spec.repeats,
        )
        run = start_or_resume(opened, spec, options.resume, allow_changed_scorer=True)
        todo = partial(_build_rescore_jobs, old, run, options)
        progress = Progress(total=total)
        control = RunControl(progress, watch, stop, stops_early=options.stops_early)
        with reduce_gc_frequency():
            await execute_jobs(run, todo, config, client=None, control=control)
        return build_eval_report(run, opened, reopen=store, interrupted=stop.requested)
    finally:
        if opened is not store:
            opened.close()


def _select_results(old: Run, options: RescoreOptions) -> Iterator[tuple[int, ResultRow]]:
    """Yield the results to score again, with their positions in the run."""
    samples, last = 0, None
    for position, row in enumerate(old.results()):
        with_failed = options.keep_failed or options.score_failures
        if not (with_failed or row.boundary in (None, Boundary.SCORER)):
            continue
        if row.sample_id != last:
            samples, last = samples + 1, row.sample_id
        if options.max_samples is not None and samples > options.max_samples:
            return
        yield position, row


def _build_rescore_jobs(
    old: Run, new: Run, options: RescoreOptions, done: Container[str]
) -> Iterator[RolloutJob]:
    """Yield the rollouts of `old` that are not scored yet, without their old scores."""
    fingerprint = new.key_fingerprint
    samples = enumerate(old.samples())
    for position, row in _select_results(old, options):
        # Results and samples come in one order, so that a single pass finds every sample.
        sample = next(sample for number, sample in samples if number == position)
        key = sample_key(new.id, row.sample_id, row.repeat, fingerprint)
        if key not in done:
            # Earlier failures stay: these samples lack a rollout that a scorer could read.
            if row.boundary in (None, Boundary.SCORER):
                sample.failure = None
            sample.score = None
            yield RolloutJob(sample, row.repeat, key, sample.id)
