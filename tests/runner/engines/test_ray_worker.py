"""A Ray worker: its folder, its runs, and which versions it compares."""

import asyncio
from pathlib import Path

import pytest

import assay
from assay.runner import EvalConfig
from assay.runner.engines import ray_worker
from assay.runner.engines.ray_worker import (
    ASSAY_FILES,
    PYTHON,
    RayWorker,
    find_versions,
    make_code_folder,
)
from assay.store import RunSpec, Store
from runner_runs import ECHO, right


def test_a_folder_is_removed_once_its_worker_has_ended(tmp_path: Path) -> None:
    ended, of_ended = make_code_folder(tmp_path)
    alive, of_alive = make_code_folder(tmp_path)
    (ended / "module.py").write_text("")
    unknown = tmp_path / "assay-ray-unlocked"
    unknown.mkdir()
    of_ended.close()

    last, of_last = make_code_folder(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([alive, unknown, last])
    of_alive.close()
    of_last.close()


def test_every_file_of_assay_counts_as_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(ray_worker.__file__).relative_to(Path(assay.__file__).parent)
    monkeypatch.setattr(ray_worker, "__file__", str(tmp_path / own))
    before = find_versions([ASSAY_FILES])

    (tmp_path / "stats.py").write_text("changed = True")

    assert find_versions([ASSAY_FILES]) != before


def test_a_package_that_is_missing_has_no_version() -> None:
    assert find_versions(["no-such-package", PYTHON])["no-such-package"] is None


def test_runs_that_are_opened_at_once_share_one_connection(tmp_path: Path) -> None:
    worker, connections = RayWorker(), 0

    async def connect() -> EvalConfig:
        nonlocal connections
        connections += 1
        await asyncio.sleep(0)
        return worker._config

    async def open_both() -> None:
        await asyncio.gather(*(worker.open_run(name, 1) for name in ("training", "held-out")))
        await worker.close()

    worker._config = EvalConfig(endpoint=ECHO, score_fn=right)
    worker._connect = connect  # type: ignore[method-assign]  # a gateway that takes its time
    with Store.open(tmp_path / "runs.db") as worker._store:
        for name in ("training", "held-out"):
            worker._store.start_run(RunSpec(name, name, {}, "c", "d"))
        asyncio.run(open_both())

    assert connections == 1
