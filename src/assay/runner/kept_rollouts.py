"""Rollouts that were paid for and can be scored again, in a resumed run or in a new one."""

from collections.abc import Iterator

from assay.errors import ConfigError
from assay.store import DoneKeys, KeptRollout, Run, Store, sample_key

from .rollout_job import RolloutJob


class KeptRollouts:
    """Rollouts that were paid for in this run, and in the runs that it reuses.

    Of the run itself those whose scorer failed; of the others those that were scored as well.
    """

    def __init__(self, run: Run, store: Store) -> None:
        self._runs: list[tuple[Run, list[DoneKeys]]] = []
        for each in iterate_reused_runs(run, store):
            known = [each.kept_keys()]
            self._runs.append((each, known if each is run else [each.done(), *known]))

    def fill_kept(self, todo: Iterator[RolloutJob]) -> Iterator[RolloutJob]:
        """The same units, with the rollouts that are there already."""
        for job in todo:
            job.kept = self._find_kept(job)
            yield job

    def _find_kept(self, job: RolloutJob) -> KeptRollout | None:
        for run, known in self._runs:
            key = sample_key(run.id, job.sample_id, job.repeat, run.key_fingerprint)
            if any(key in keys for keys in known) and (kept := run.kept(key)) is not None:
                return kept
        return None


def iterate_reused_runs(run: Run, store: Store) -> Iterator[Run]:
    """A run, the one whose rollouts it reuses, and so on."""
    yield run
    while run.spec.reuses is not None:
        try:
            run = store.run(run.spec.reuses)
        except ConfigError:
            return  # it was deleted since
        yield run
