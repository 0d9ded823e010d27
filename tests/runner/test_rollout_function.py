"""`rollout_fn`: a function of the user in place of the turn loop."""

from pathlib import Path
from typing import Any

import pytest

from assay.providers import ModelClient
from assay.runner import EvalConfig
from assay.types import Boundary, Message, Sample, Trajectory
from runner_runs import ECHO, right, rows, run


def test_a_function_of_the_user_can_take_the_place_of_the_turn_loop(store: Path) -> None:
    async def ask_twice(client: ModelClient | None, sample: Sample) -> Trajectory:
        assert client is not None
        messages = list(sample.messages)
        for _ in range(2):
            messages.append((await client.complete(messages)).message)
        return Trajectory(messages=messages, termination_reason="own")

    config = EvalConfig(endpoint=ECHO, score_fn=right, rollout_fn=ask_twice)
    report = run(rows(3), config, store=store)

    assert report.mean == 1.0
    assert [len(sample.messages) for sample in report.samples] == [3, 3, 3]
    assert config.fingerprint() != EvalConfig(endpoint=ECHO, score_fn=right).fingerprint()


def test_a_rollout_of_the_user_needs_no_model(store: Path) -> None:
    async def answer(client: ModelClient | None, sample: Sample) -> Trajectory:
        assert client is None
        return Trajectory(messages=[*sample.messages, Message(role="assistant", content="42")])

    config = EvalConfig(score_fn=lambda sample: sample.response == "42", rollout_fn=answer)

    assert run(rows(2), config, store=store).mean == 1.0


@pytest.mark.parametrize("fault", ["none", "raise", "exit"])
def test_a_rollout_of_the_user_that_breaks_is_a_failure_of_its_sample(
    fault: str, store: Path
) -> None:
    async def broken(client: ModelClient | None, sample: Sample) -> Any:
        if sample.id == "r0" and fault == "raise":
            raise ValueError("broken")
        if sample.id == "r0" and fault == "exit":
            raise SystemExit(1)
        return None if sample.id == "r0" else Trajectory(messages=sample.messages)

    report = run(rows(2), EvalConfig(score_fn=lambda s: 1.0, rollout_fn=broken), store=store)

    failed, fine = report.samples
    assert failed.failure is not None
    assert failed.failure.boundary is Boundary.ENVIRONMENT
    assert fine.reward == 1.0
