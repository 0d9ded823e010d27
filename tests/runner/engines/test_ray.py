"""The Ray engine with workers that die, without a cluster."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from assay.errors import RunStopped
from assay.runner import EvalConfig, Progress, RolloutJob, RunControl, Stop
from assay.types import Sample

pytest.importorskip("ray", reason="the Ray engine needs the extra `ray`")

from ray.exceptions import RayActorError

from assay.runner.engines.ray import RayEngine
from assay.runner.engines.ray_cluster import StartedWorker


class Method:
    """A method of an actor."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, object]]) -> None:
        self._call = call

    def remote(self, *given: object) -> "asyncio.Future[object]":
        return asyncio.ensure_future(self._call(*given))


class DyingWorker:
    """Dies of the first job that it is sent."""

    def __init__(self) -> None:
        self._sent = asyncio.Event()
        self.open_run = self.close_run = self.stop = Method(self._answer)
        self.execute = Method(self._execute)
        self.collect = Method(self._die)

    async def _answer(self, *given: object) -> None: ...

    async def _execute(self, *given: object) -> None:
        self._sent.set()

    async def _die(self, *given: object) -> None:
        await self._sent.wait()
        raise RayActorError


class Cluster:
    """Replaces a dead worker by another one, as often as it is told."""

    def __init__(self, replacements: int) -> None:
        self.workers = [self._start()]
        self.replacements = replacements

    def _start(self) -> StartedWorker:
        return StartedWorker(DyingWorker(), 1, "127.0.0.2")

    async def replace_worker(self, part: int, dead: StartedWorker) -> StartedWorker:
        if not self.replacements:
            raise RunStopped("a worker did not start")
        self.replacements -= 1
        return self._start()


async def execute(cluster: Cluster, recorded: dict[str, tuple[float, None]]) -> Progress:
    progress = Progress(total=1)
    run: Any = SimpleNamespace(id="run", find_rewards=lambda keys: recorded)
    config = EvalConfig(endpoint="mock:echo", score_fn="exact_answer")
    control = RunControl(progress, None, Stop())
    given: Any = (cluster, run, config, None, None, control)
    await RayEngine(*given).run(build_jobs())
    return progress


def build_jobs() -> Iterator[RolloutJob]:
    yield RolloutJob(Sample(id="a", prompt="?"), 0, "key-a", "a")


def run_until_it_ends(
    replacements: int, recorded: dict[str, tuple[float, None]] | None = None
) -> Progress:
    async def run() -> Progress:
        return await asyncio.wait_for(execute(Cluster(replacements), recorded or {}), 20)

    return asyncio.run(run())


def test_a_sample_that_takes_five_workers_with_it_ends_the_run() -> None:
    with pytest.raises(RunStopped, match="5 workers died while they executed sample 'a'") as caught:
        run_until_it_ends(replacements=9)

    assert caught.value.hint is not None


def test_a_cluster_without_workers_ends_the_run() -> None:
    with pytest.raises(RunStopped, match="every worker of the cluster died, and none could be"):
        run_until_it_ends(replacements=2)


def test_a_result_that_a_dead_worker_committed_counts_once() -> None:
    progress = run_until_it_ends(replacements=1, recorded={"key-a": (0.5, None)})

    assert (progress.done, progress.mean) == (1, 0.5)
