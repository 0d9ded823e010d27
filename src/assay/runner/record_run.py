"""`record_samples`: store finished samples as they are. Calls no agent and no scorer."""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from assay.errors import AssayError, StoreError
from assay.store import InsertRow, Run, build_result_row
from assay.types import Failure, Sample, reduce_gc_frequency

from .engines.in_process import EvalEngine
from .eval_config import EvalConfig
from .evaluation import execute_jobs
from .rollout_job import RolloutJob, build_rollout_jobs
from .run_progress import RunControl

SettleSample = Callable[[str, bool | AssayError], None]
"""Called with the id of each sample, and whether it was inserted or why it cannot be written."""


async def record_samples(
    run: Run, samples: Iterable[Sample], control: RunControl, settle: SettleSample
) -> None:
    """Record the samples that the run lacks, and store how the run ended.

    A sample that cannot be written does not end the run, and neither does one whose id the run
    already has: `settle` is called for each.
    """
    # Nothing is waited for: more samples at once would only take memory.
    config = EvalConfig(environment="basic", concurrency=1)

    def todo(done: Container[str]) -> Iterator[RolloutJob]:
        return build_rollout_jobs(iter(samples), config, run, done)

    def build_engine(*given: Any) -> EvalEngine:
        engine = _RecordEngine(*given)
        engine.settle = settle
        return engine

    with reduce_gc_frequency():
        await execute_jobs(
            run, todo, config, client=None, control=control, build_engine=build_engine
        )


class _RecordEngine(EvalEngine):
    """Records each sample without a rollout or a score."""

    settle: SettleSample
    _probes = False

    async def _attempt(self, job: RolloutJob) -> Failure | None:
        await asyncio.sleep(0)  # let a signal handler run
        return None

    def _encode_job(self, job: RolloutJob, *, failed: bool) -> tuple[InsertRow, str] | None:
        try:
            return build_result_row(job.key, job.sample, job.repeat), job.sample_id
        except StoreError:
            raise
        except AssayError as error:
            # About this sample only.
            self.settle(job.sample_id, error)
            return None

    def _count_result(self, note: Any, fresh: bool) -> None:
        self.settle(note, fresh)
        self._progress.done += fresh
