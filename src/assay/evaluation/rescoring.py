"""`rescore`: another scorer over rollouts that are already recorded. Calls no model."""

from collections.abc import Container, Iterator
from pathlib import Path

from assay.errors import ConfigError
from assay.models import Boundary, stable_id
from assay.record import Run, RunSpec, Store, sample_key
from assay.scoring import ScoreFunction

from .config import EvalConfig
from .engine import Unit
from .progress import Oversight, Progress, Stop, Watch
from .report import EvalReport, report_on
from .running import new_run_id, work_through


async def rescore(
    run_id: str,
    score_fn: ScoreFunction,
    *,
    store: Store | str | Path | None = None,
    name: str | None = None,
    keep_failed: bool = False,
    watch: Watch | None = None,
) -> EvalReport:
    """Score the rollouts of a run again, as a new run.

    Samples whose scorer failed are among them. Those that never had a whole rollout are left to
    the run that they belong to, or with `keep_failed` are failures of the new run as well.
    """
    opened = store if isinstance(store, Store) else Store.open(store, create=False)
    try:
        old = opened.run(run_id)
        config = EvalConfig(score_fn=score_fn, name=name or f"{old.spec.name} rescored")
        description = {**config.describe(), "rescored": old.id}
        spec = RunSpec(
            id=new_run_id(config.name),
            name=config.name,
            config=description,
            config_fingerprint=stable_id(description),
            dataset=old.spec.dataset,
            dataset_fingerprint=old.spec.dataset_fingerprint,
            repeats=old.spec.repeats,
        )
        run = opened.start_run(spec)

        def todo(done: Container[str]) -> Iterator[Unit]:
            return _stripped(old, run, keep_failed=keep_failed)

        oversight = Oversight(Progress(), watch, Stop())
        await work_through(run, todo, config, client=None, oversight=oversight)
        report = report_on(opened, run.id, reopen=store, interrupted=False)
        if not report.summary.results:
            raise ConfigError(f"run {old.id!r} has no rollout to score", where="rescore()")
        return report
    finally:
        if opened is not store:
            opened.close()


def _stripped(old: Run, new: Run, *, keep_failed: bool) -> Iterator[Unit]:
    """The rollouts of `old` without what was said of them."""
    for row, sample in zip(old.results(), old.samples(), strict=True):
        whole = row.boundary in (None, Boundary.SCORER)
        if whole:
            sample.failure = None
        if whole or keep_failed:
            sample.score = None
            fingerprint = new.spec.config_fingerprint
            yield Unit(
                sample, row.repeat, sample_key(new.id, row.sample_id, row.repeat, fingerprint)
            )
