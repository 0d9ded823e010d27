"""`evaluate` that its caller cancels, at whatever point: nothing of it is left in the process."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from assay.runner import EvalConfig, evaluate
from assay.store import Store
from assay.types import Sample
from runner_runs import ECHO, right, rows

# Turns of the event loop until the caller cancels. A whole run takes more.
_TURNS = 40


async def wait_a_turn(sample: Sample) -> str:
    await asyncio.sleep(0)
    return str(sample.prompt)


def answer(sample: Sample) -> str:
    return str(sample.prompt)


async def cancel_after(turns: int, config: EvalConfig, store: Store, *, times: int = 1) -> bool:
    """Whether the evaluation was cancelled before its end."""
    task = asyncio.create_task(evaluate(rows(3), config, store=store))
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return task.cancelled()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "agent",
    [
        {"endpoint": ECHO},
        {"agent": wait_a_turn},
        {"agent": answer},
        {"agent": "cmd:echo", "endpoint": ECHO},
    ],
    ids=["model", "async", "sync", "gateway"],
)
def test_no_thread_no_task_and_no_setting_is_left(
    agent: dict[str, Any], times: int, tmp_path: Path
) -> None:
    threads, threshold = set(threading.enumerate()), gc.get_threshold()
    config, cancelled = EvalConfig(score_fn=right, **agent), 0

    with Store.open(tmp_path / "runs.db") as store:
        for turns in range(0, _TURNS, times):
            cancelled += asyncio.run(cancel_after(turns, config, store, times=times))
            assert gc.get_threshold() == threshold, f"after {turns} turns"
        assert {row.status for row in store.runs()} <= {"interrupted", "completed"}

    assert cancelled > _TURNS // times // 2
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
        assert not thread.is_alive(), thread.name
