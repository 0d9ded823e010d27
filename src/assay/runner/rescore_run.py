"""`rescore`: another scorer over rollouts that are already recorded. Calls no model."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.errors import ConfigError
from assay.scorers import ScoreFunction
from assay.store import ResultRow, Run, RunSpec, Store, sample_key
from assay.types import Boundary, Sample, stable_id

from .eval_config import EvalConfig
from .eval_report import EvalReport, build_eval_report
from .evaluation import Resume, create_run_id, execute_jobs, start_or_resume
from .gc_tuning import reduce_gc_frequency
from .rollout_job import RolloutJob
from .run_progress import Progress, ProgressCallback, RunControl, Stop


@dataclass(frozen=True, kw_only=True)
class RescoreOptions:
    """Which rollouts are scored again, and how."""

    name: str | None = None
    """Of the new run. None: after the old one."""

    keep_failed: bool = False
    """Samples that never had a whole rollout are failures of the new run as well; otherwise they
    are left to the run that they belong to."""

    limit: int | None = None
    """Only the first so many samples, with all their repeats."""

    concurrency: int = 100
    """Samples in progress at once."""

    bounds: tuple[float, float] | None = None
    """The lowest and highest score possible, where scores are not within 0..1."""

    resume: Resume | str | None = None
    """Which rescoring to go on with: what it has scored is not scored again."""

    stops_early: bool = True
    """Whether the new run is stopped when nothing of it succeeds."""


async def rescore(
    run_id: str,
    score_fn: ScoreFunction,
    *,
    store: Store | str | Path | None = None,
    how: RescoreOptions | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> EvalReport:
    """Score the rollouts of a run again, as a new run. Samples whose scorer failed are among them.

    Each result is recorded once, as it comes: after `stop`, or a killed process, the run can be
    resumed.
    """
    how, stop = how or RescoreOptions(), stop or Stop()
    opened = store if isinstance(store, Store) else Store.open(store, create=False)
    try:
        old = opened.run(run_id)
        name = how.name or f"{old.spec.name} rescored"
        config = EvalConfig(
            score_fn=score_fn, name=name, concurrency=how.concurrency, bounds=how.bounds
        )
        total = sum(1 for _ in _select_results(old, how))
        if not total:
            raise ConfigError(f"run {old.id!r} has no rollout to score", where="rescore()")
        spec = _build_rescore_spec(old, config, total)
        run = start_or_resume(opened, spec, how.resume, allow_changed_scorer=True)

        def todo(done: Container[str]) -> Iterator[RolloutJob]:
            return _build_rescore_jobs(old, run, how, done)

        progress = Progress(total=total)
        control = RunControl(progress, watch, stop, stops_early=how.stops_early)
        with reduce_gc_frequency():
            await execute_jobs(run, todo, config, client=None, control=control)
        return build_eval_report(run, opened, reopen=store, interrupted=stop.requested)
    finally:
        if opened is not store:
            opened.close()


def _build_rescore_spec(old: Run, config: EvalConfig, total: int) -> RunSpec:
    description = {**config.describe(), "rescored": old.id}
    return RunSpec(
        id=create_run_id(config.name),
        name=config.name,
        config=description,
        config_fingerprint=stable_id(description),
        dataset=old.spec.dataset,
        dataset_fingerprint=old.spec.dataset_fingerprint,
        total=total,
        repeats=old.spec.repeats,
    )


def _select_results(old: Run, how: RescoreOptions) -> Iterator[tuple[int, ResultRow]]:
    """The results that are scored again, with their place among all of the run."""
    samples, last = 0, None
    for place, row in enumerate(old.results()):
        if not (how.keep_failed or row.boundary in (None, Boundary.SCORER)):
            continue
        if row.sample_id != last:
            samples, last = samples + 1, row.sample_id
        if how.limit is not None and samples > how.limit:
            return
        yield place, row


def _build_rescore_jobs(
    old: Run, new: Run, how: RescoreOptions, done: Container[str]
) -> Iterator[RolloutJob]:
    """The rollouts of `old` that are not done yet, without what was said of them."""
    fingerprint = new.key_fingerprint
    samples = enumerate(old.samples())
    for place, row in _select_results(old, how):
        sample = next(sample for number, sample in samples if number == place)
        key = sample_key(new.id, row.sample_id, row.repeat, fingerprint)
        if key not in done:
            yield RolloutJob(_strip_score(sample, row), row.repeat, key, sample.id)


def _strip_score(sample: Sample, row: ResultRow) -> Sample:
    if row.boundary in (None, Boundary.SCORER):
        sample.failure = None
    sample.score = None
    return sample
