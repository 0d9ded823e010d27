"""`evaluate_sync`: in scripts, and inside a running event loop."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from assay import EvalConfig, EvaluateResult, Sample, evaluate_sync
from assay.errors import StoreError
from assay.runner import Progress
from assay.store import Store

ROWS = [{"id": "a", "question": "One?"}, {"id": "b", "question": "Two?"}]


def give_full_score(sample: Sample) -> EvaluateResult:
    return EvaluateResult(score=1.0)


CONFIG = EvalConfig(endpoint="mock:echo", score_fn=give_full_score)


def test_a_script_gets_the_report(tmp_path: Path) -> None:
    seen: list[Progress] = []

    report = evaluate_sync(ROWS, CONFIG, store=tmp_path / "a.db", watch=seen.append)

    assert (report.mean, len(report.samples), len(seen)) == (1.0, 2, 2)


def test_a_running_loop_is_no_obstacle(tmp_path: Path) -> None:
    async def run_cell() -> float | None:
        with Store.open(tmp_path / "a.db") as store:
            report = evaluate_sync(ROWS, CONFIG, store=store)
            return report.mean if len(list(report.samples)) == 2 else None

    assert asyncio.run(run_cell()) == 1.0
    assert not [each for each in threading.enumerate() if "evaluate_sync" in each.name]


def test_an_error_of_the_run_is_raised_in_both(tmp_path: Path) -> None:
    async def run_cell() -> None:
        evaluate_sync(ROWS, CONFIG, store=tmp_path / "a.db", resume="latest")

    with pytest.raises(StoreError, match="the store does not exist"):
        evaluate_sync(ROWS, CONFIG, store=tmp_path / "a.db", resume="latest")
    with pytest.raises(StoreError, match="the store does not exist"):
        asyncio.run(run_cell())


def test_ctrl_c_in_a_notebook_cancels_the_evaluation(tmp_path: Path) -> None:
    async def wait_forever(sample: Sample) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return "never"

    async def run_cell() -> None:
        config = EvalConfig(agent=wait_forever, score_fn=give_full_score, concurrency=1)
        evaluate_sync(ROWS, config, store=tmp_path / "a.db")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cell())

    with Store.open(tmp_path / "a.db", create=False) as store:
        assert store.run("latest").status == "interrupted"
