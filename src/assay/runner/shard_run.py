"""`run_shard`: execute one part of a run beside other processes."""

from dataclasses import dataclass
from pathlib import Path

from assay.datasets import SampleStream, SkippedRows, Source
from assay.errors import ConfigError
from assay.store import RunRow, Store

from .eval_config import EvalConfig
from .evaluation import check_arguments, execute_evaluation, prepare_evaluation
from .replay_source import open_replay
from .run_progress import ProgressCallback, Stop
from .shard import Shard


@dataclass(frozen=True)
class ShardReport:
    """What one process did, and the state of the whole run when it ended."""

    shard: Shard
    done: int
    """Samples that this process recorded, repeats counted."""

    failed: int
    interrupted: bool
    run: RunRow
    skipped: SkippedRows
    """Invalid rows of the dataset that were skipped."""


async def run_shard(
    dataset: Source | SampleStream,
    config: EvalConfig,
    shard: Shard,
    *,
    store: Store | str | Path | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> ShardReport:
    """Execute the samples of one shard that are not recorded yet.

    Every process passes the same dataset and configuration. Shards may run at once or one after
    the other, in any order, and again: each result is recorded once. Raises what `evaluate` raises.
    """
    stop = stop or Stop()
    check_arguments(dataset, config, where="run_shard()")
    if not isinstance(shard, Shard):
        raise ConfigError(
            f"`shard` cannot be of type `{type(shard).__name__}`",
            where="run_shard()",
            hint="pass a Shard as the third argument, such as Shard(run_id, 1, 4)",
        )
    with open_replay(config, store) as (config, replay):
        prepared = prepare_evaluation(dataset, config, replay, shard)
        opened = store if isinstance(store, Store) else Store.open(store)
        try:
            run, progress = await execute_evaluation(
                prepared, shard, store=opened, watch=watch, stop=stop
            )
            return ShardReport(
                shard,
                done=progress.done,
                failed=progress.failed,
                interrupted=stop.requested,
                run=run.row(),
                skipped=prepared.samples.skipped,
            )
        finally:
            if opened is not store:
                opened.close()
