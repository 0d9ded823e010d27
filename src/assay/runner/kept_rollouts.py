"""Recorded rollouts that can be scored without making them again."""

from collections.abc import Iterator

from assay.errors import ConfigError
from assay.store import DoneKeys, Run, Store, sample_key

from .rollout_job import RolloutJob


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
