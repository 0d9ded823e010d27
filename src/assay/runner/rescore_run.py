"""`rescore`: apply another scorer to recorded rollouts. Calls no model."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from assay.errors import ConfigError
from assay.scorers import ScoreFunction
from assay.store import ResultRow, Run, RunSpec, Store, sample_key
from assay.types import Boundary, Sample, reduce_gc_frequency, stable_id

from .engines.in_process import EvalEngine
from .engines.ray_settings import EngineRef, refuse_file_store
from .eval_config import EvalConfig
from .eval_report import EvalReport, build_eval_report
from .evaluation import Resume, create_run_id, execute_jobs, open_engine, start_or_resume
from .kept_rollouts import restore_failure
from .peers import Peers
from .rollout_job import RolloutJob
from .run_progress import Progress, ProgressCallback, RunControl, Stop
from .shard import Shard

_SAMPLES_PER_PAGE = 50


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

    engine: EngineRef | None = None
    """Where samples are scored, as in `EvalConfig`."""


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
    if not isinstance(run_id, str):
        raise ConfigError(
            f"`run_id` cannot be of type `{type(run_id).__name__}`",
            where="rescore()",
            hint="write rescore(run_id, score_fn, ...); the id of a report is `report.run_id`",
        )
    if options.engine is not None:
        refuse_file_store(store)
    opened = store if isinstance(store, Store) else Store.open(store, create=False)
    try:
        plan = _plan_rescore(opened.run(run_id), score_fn, options)
        async with open_engine(plan.config, opened, stop) as build_engine:
            run = start_or_resume(opened, plan.spec, options.resume, allow_changed_scorer=True)
            control = RunControl(
                Progress(total=plan.rollouts), watch, stop, stops_early=options.stops_early
            )
            await _execute_rescore(plan, run, control, build_engine=build_engine(run))
        return build_eval_report(run, opened, reopen=store, interrupted=stop.requested)
    finally:
        if opened is not store:
            opened.close()


async def rescore_shard(
    run_id: str,
    score_fn: ScoreFunction,
    shard: Shard,
    *,
    store: Store,
    options: RescoreOptions,
    stop: Stop,
) -> None:
    """Score one part of the rollouts of a run again, beside other processes."""
    plan = _plan_rescore(store.run(run_id), score_fn, options)
    if plan.rollouts != plan.samples * plan.spec.repeats:
        # The run would never count as complete.
        raise ConfigError(
            f"some of the {plan.spec.repeats} rollouts of a sample are missing in run "
            f"{plan.old.id!r}",
            where="--workers",
            hint="leave out --workers",
        )
    spec = replace(plan.spec, id=shard.run_id)
    run = store.join_run(spec, shard=str(shard), allow_changed_total=shard.allows_changed_total)
    peers = Peers(run, count=shard.count, failed_before=shard.failed_before)
    control = RunControl(Progress(), None, stop, stops_early=options.stops_early, peers=peers)
    await _execute_rescore(plan, run, control, shard=shard)


@dataclass(frozen=True)
class _RescorePlan:
    old: Run
    config: EvalConfig
    spec: RunSpec
    options: RescoreOptions
    samples: int
    rollouts: int


def _plan_rescore(old: Run, score_fn: ScoreFunction, options: RescoreOptions) -> _RescorePlan:
    name = options.name or f"{old.spec.name} rescored"
    config = EvalConfig(
        score_fn=score_fn,
        score_failures=options.score_failures,
        name=name,
        concurrency=options.concurrency,
        bounds=options.bounds,
        engine=options.engine,
    )
    rollouts = samples = 0
    last = None
    for row in _select_results(old, options):
        rollouts, samples = rollouts + 1, samples + (row.sample_id != last)
        last = row.sample_id
    if not rollouts:
        raise ConfigError(f"run {old.id!r} has no rollouts to score", where="rescore()")
    description = {**config.describe(), "rescored": old.id}
    spec = RunSpec(
        id=create_run_id(name),
        name=name,
        config=description,
        config_fingerprint=stable_id(description),
        dataset=old.spec.dataset,
        dataset_fingerprint=old.spec.dataset_fingerprint,
        total=samples,
        repeats=old.spec.repeats,
    )
    return _RescorePlan(old, config, spec, options, samples, rollouts)


async def _execute_rescore(
    plan: _RescorePlan,
    run: Run,
    control: RunControl,
    *,
    shard: Shard | None = None,
    build_engine: Callable[..., EvalEngine] = EvalEngine,
) -> None:
    todo = partial(_build_rescore_jobs, plan, run, shard)
    with reduce_gc_frequency():
        await execute_jobs(
            run, todo, plan.config, client=None, control=control, build_engine=build_engine
        )


def _select_results(old: Run, options: RescoreOptions) -> Iterator[ResultRow]:
    """Yield the results to score again."""
    samples, last = 0, None
    for row in old.results():
        with_failed = options.keep_failed or options.score_failures
        if not (with_failed or row.boundary in (None, Boundary.SCORER)):
            continue
        if row.sample_id != last:
            samples, last = samples + 1, row.sample_id
        if options.max_samples is not None and samples > options.max_samples:
            return
        yield row


def _build_rescore_jobs(
    plan: _RescorePlan, new: Run, shard: Shard | None, done: Container[str]
) -> Iterator[RolloutJob]:
    """Yield the rollouts that are not scored yet, without their old scores."""
    rows = (
        (row, key)
        for row in _select_results(plan.old, plan.options)
        if shard is None or shard.has(row.sample_id)
        if (key := sample_key(new.id, row.sample_id, row.repeat, new.key_fingerprint)) not in done
    )
    if plan.options.engine is not None:
        for row, key in rows:
            # The worker reads the rest from the store.
            yield RolloutJob(
                Sample(id=row.sample_id), row.repeat, key, row.sample_id, source=row.key
            )
        return
    while page := list(islice(rows, _SAMPLES_PER_PAGE)):
        # By key: a shard reads the samples of its own part only.
        samples = dict(plan.old.samples_by_key(row.key for row, _ in page))
        for row, key in page:
            if row.key not in samples:
                raise ConfigError(
                    f"sample {row.sample_id!r} was deleted before it was scored again",
                    where=f"run {plan.old.id!r}",
                )
            sample = clear_score(samples.pop(row.key))
            yield RolloutJob(sample, row.repeat, key, sample.id)


def clear_score(sample: Sample) -> Sample:
    """Remove the score of a recorded sample, and the failure of its scorer."""
    # Earlier failures stay: these samples lack a rollout that a scorer could read.
    if sample.failure is not None and sample.failure.boundary is Boundary.SCORER:
        sample.failure = None
    if sample.failure is None:
        restore_failure(sample)
    sample.score = None
    return sample
