"""Recorded rollouts that can be scored without making them again."""

from collections.abc import Iterator
from contextlib import suppress

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.store import DoneKeys, Run, Store, sample_key
from assay.types import Failure, Sample

from .rollout_job import RolloutJob

_FAILURE_FIELD = "agent_failure"


class KeptRollouts:
    """The recorded rollouts of a run and of the runs that it reuses.

    Of the run itself only those whose scorer failed; of reused runs the scored ones as well.
    """

    def __init__(self, run: Run, store: Store) -> None:
        self._runs: list[tuple[Run, list[DoneKeys]]] = []
        for each in iterate_reused_runs(run, store):
            known = [each.read_kept_keys()]
            self._runs.append((each, known if each is run else [each.read_done_keys(), *known]))

    def fill_kept(self, todo: Iterator[RolloutJob]) -> Iterator[RolloutJob]:
        """Yield the same jobs, with their recorded rollouts."""
        for job in todo:
            for run, known in self._runs:
                key = sample_key(run.id, job.sample_id, job.repeat, run.key_fingerprint)
                # The key sets are in memory: most samples cost no query.
                if any(key in keys for keys in known):
                    job.kept = run.find_kept_rollout(key)
                if job.kept is not None:
                    break
            yield job


def iterate_reused_runs(run: Run, store: Store) -> Iterator[Run]:
    """Yield a run, the run that it reuses, the run that one reuses, and so on."""
    yield run
    while run.spec.reuses is not None:
        try:
            run = store.run(run.spec.reuses)
        except ConfigError:
            return  # deleted in the meantime
        yield run


def keep_failure(sample: Sample) -> None:
    """Add the failure of a sample that is scored all the same to its trajectory.

    A result has no failure, and that of a scorer replaces it.
    """
    if sample.failure is not None and sample.trajectory is not None:
        kept = {_FAILURE_FIELD: sample.failure.model_dump(mode="json")}
        sample.trajectory = sample.trajectory.model_copy(update=kept)


def restore_failure(sample: Sample) -> None:
    """Set the failure that `keep_failure` added: a scorer may read it again."""
    kept = None if sample.trajectory is None else (sample.trajectory.model_extra or {})
    if kept and _FAILURE_FIELD in kept:
        # The trajectory of an agent may have any field.
        with suppress(ValidationError):
            sample.failure = Failure.model_validate(kept[_FAILURE_FIELD])
