"""The settings of a run on Ray: what is refused before a cluster is started."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest

from assay.certify import CertifySettings
from assay.errors import ConfigError
from assay.runner import (
    EvalConfig,
    RayCluster,
    RaySettings,
    RescoreOptions,
    Shard,
    Stop,
    evaluate_sync,
    rescore,
    run_shard,
)

_ROWS = [{"id": "a", "prompt": "Hello"}]


def build_config(engine: object) -> EvalConfig:
    return EvalConfig(endpoint="mock:echo", score_fn="exact_answer", engine=engine)  # type: ignore[arg-type]  # also wrong ones


@pytest.mark.parametrize("store", [None, "runs.db", Path("runs.db"), "sqlite:///runs.db"])
def test_a_sqlite_store_is_refused_and_not_created(
    store: str | Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="cannot record into a SQLite file: they may run on"):
        evaluate_sync(_ROWS, build_config("ray"), store=store)

    assert list(tmp_path.iterdir()) == []


def test_evaluate_takes_the_engine_as_a_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot record into a SQLite file"):
        evaluate_sync(_ROWS, build_config(None), store=tmp_path / "runs.db", engine="ray")


def test_a_certification_takes_the_engine_as_a_word() -> None:
    assert CertifySettings(engine="ray").engine == RaySettings()


@pytest.mark.parametrize("build", [build_config, lambda engine: CertifySettings(engine=engine)])
@pytest.mark.parametrize("engine", ["dask", 4, RaySettings])
def test_an_unknown_engine_is_refused(engine: object, build: Callable[[object], object]) -> None:
    with pytest.raises(ConfigError, match=r"engine=.* is unknown"):
        build(engine)


@pytest.mark.parametrize("address", ["ray://host:1", "host", "host:", ":1", "host:99999", "auto"])
def test_an_address_must_be_host_and_port(address: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a Ray cluster"):
        RaySettings(address=address)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_the_number_of_workers_must_be_above_zero(workers: int) -> None:
    with pytest.raises(ConfigError, match=r"workers=.* is not a number above 0"):
        RaySettings(workers=workers)


def test_the_engine_does_not_change_the_fingerprint() -> None:
    assert build_config("ray").fingerprint() == build_config(None).fingerprint()
    assert build_config("ray").engine == RaySettings()


def test_a_replay_is_refused() -> None:
    with pytest.raises(ConfigError, match="`engine` and `replay` cannot be combined"):
        EvalConfig(
            endpoint="mock:echo", score_fn="exact_answer", engine="ray", replay="calls.jsonl"
        )


def test_a_shard_has_no_engine(tmp_path: Path) -> None:
    shard = Shard("nightly", 1, 2)
    run = run_shard(_ROWS, build_config("ray"), shard, store=tmp_path / "runs.db")

    with pytest.raises(ConfigError, match="a shard is executed by one process"):
        asyncio.run(run)


def test_a_stop_request_ends_the_wait_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a cluster whose CPUs are in use. The run is recorded, and can be resumed."""

    class BusyCluster(RayCluster):
        def __init__(self, *given: object) -> None: ...

        async def __aenter__(self) -> Self:
            asyncio.get_running_loop().call_soon(stop.request)
            await asyncio.Event().wait()
            return self

        async def __aexit__(self, *error: object) -> None: ...

    monkeypatch.setattr("assay.runner.engines.ray_cluster.RayCluster", BusyCluster)
    stop, config = Stop(), build_config("ray")
    monkeypatch.setattr("assay.runner.evaluation.refuse_file_store", lambda store: None)

    report = evaluate_sync(_ROWS, config, store=tmp_path / "runs.db", stop=stop)

    assert report.interrupted
    assert report.summary.samples == 0


def build_cluster() -> RayCluster:
    store: Any = SimpleNamespace(url="postgresql://127.0.0.1:1/none")
    return RayCluster(build_config("ray"), store)


def test_workers_are_not_started_for_a_run_that_was_stopped_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start() -> bool:
        stop = Stop()
        stop.request()
        async with AsyncExitStack() as stack:
            return await build_cluster().start(stack, stop)

    async def refuse(cluster: RayCluster) -> None:
        raise AssertionError

    monkeypatch.setattr(RayCluster, "__aenter__", refuse)

    assert asyncio.run(start()) is False


def test_a_caller_that_is_cancelled_is_not_told_that_the_run_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = asyncio.Event()

    async def wait(cluster: RayCluster) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def cancel() -> None:
        stop = Stop()
        async with AsyncExitStack() as stack:
            task = asyncio.create_task(build_cluster().start(stack, stop))
            await entered.wait()
            stop.request()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    monkeypatch.setattr(RayCluster, "__aenter__", wait)

    asyncio.run(cancel())


def test_a_cluster_whose_start_was_stopped_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="the Ray engine needs the extra `ray`")
    connecting, connected, calls = threading.Event(), threading.Event(), list[str]()

    def connect(**options: object) -> None:
        connecting.set()
        connected.wait(60)
        calls.append(f"started with a token: {'RAY_AUTH_TOKEN' in os.environ}")

    ray = ModuleType("ray")
    ray.__dict__.update(
        is_initialized=lambda: False, init=connect, shutdown=lambda: calls.append("shut down")
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    async def start() -> bool:
        stop = Stop()
        async with AsyncExitStack() as stack:
            task = asyncio.create_task(build_cluster().start(stack, stop))
            await asyncio.to_thread(connecting.wait, 60)
            for _ in range(2):
                stop.request()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert not task.done()
            connected.set()
            return await task

    assert asyncio.run(start()) is False
    assert calls == ["started with a token: True", "shut down"]
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_rescoring_into_a_file_is_refused(tmp_path: Path) -> None:
    scored = rescore(
        "latest",
        repr,
        store=tmp_path / "runs.db",
        options=RescoreOptions(engine="ray"),
    )

    with pytest.raises(ConfigError, match="cannot record into a SQLite file"):
        asyncio.run(scored)
