"""`evaluate` with other people's code in it: what it does stays with its own sample."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.environments import BasicEnvironment, Environment, Step
from assay.errors import AccessDenied, DatasetError
from assay.providers import ClientSettings
from assay.runner import EvalConfig, Resume
from assay.store import Store
from assay.types import Boundary, Message, Sample, Trajectory
from misbehaving import PATIENCE_S
from runner_runs import ECHO, NO_RETRIES, right, rows, run, scripted


def leaves(sample: Sample) -> Any:
    if sample.id == "r1":
        sys.exit(0)
    return sample.messages


def leaves_early(sample: Sample) -> Environment:
    leaves(sample)
    return BasicEnvironment()


@pytest.mark.parametrize(
    ("field", "code", "boundary"),
    [
        ("prepare_messages", leaves, Boundary.DATASET),
        ("environment", leaves_early, Boundary.ENVIRONMENT),
        ("score_fn", leaves, Boundary.SCORER),
    ],
)
def test_code_that_exits_fails_its_sample_and_no_other(
    store: Path, field: str, code: Any, boundary: Boundary
) -> None:
    def score(sample: Sample) -> bool:
        return True

    given: dict[str, Any] = {
        "score_fn": score,
        field: (lambda s: bool(code(s))) if field == "score_fn" else code,
    }
    report = run(rows(4), EvalConfig(endpoint=ECHO, **given), store=store)

    assert report.summary.judged_samples == 3
    (failed,) = [sample for sample in report.samples if sample.failure is not None]
    assert failed.id == "r1"
    assert failed.failure is not None
    assert (failed.failure.boundary, failed.failure.kind) == (boundary, "SystemExit")


def test_a_dataset_that_exits_is_an_error_and_what_was_read_before_is_kept(store: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield from rows(3)
        sys.exit(0)

    with pytest.raises(DatasetError, match=r"the dataset's own code called sys\.exit\(0\)"):
        run(stream(), EvalConfig(endpoint=ECHO, score_fn=right), store=store)

    with Store.open(store) as opened:
        assert len(list(opened.run().results())) == 3


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("hello", "returned a str instead of a list of messages"),
        ({"role": "user", "content": "hello"}, "returned a dict instead of a list of messages"),
        (Message(role="user", content="hello"), "returned a Message instead of a list of messages"),
    ],
)
def test_messages_that_are_no_list_are_named(store: Path, returned: Any, said: str) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right, prepare_messages=lambda sample: returned)

    (sample,) = run(rows(1), config, store=store).samples

    assert sample.failure is not None
    assert said in sample.failure.message


def test_a_sample_whose_id_is_changed_fails_under_its_own(store: Path) -> None:
    def score(sample: Sample) -> bool:
        sample.id = "mine"
        return True

    report = run(rows(2), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert [sample.id for sample in report.samples] == ["r0", "r1"]
    for sample in report.samples:
        assert sample.failure is not None
        assert "the id of the sample was changed to 'mine'" in sample.failure.message


def test_a_repeat_does_not_see_what_another_did_to_its_row(store: Path) -> None:
    def score(sample: Sample) -> bool:
        sample.metadata["seen"] = True
        return bool(sample.input.pop("answer", None))

    config = EvalConfig(endpoint=ECHO, score_fn=score, repeats=3, concurrency=1)
    report = run(rows(2), config, store=store)

    assert [sample.reward for sample in report.samples] == [1.0] * 6


@pytest.mark.parametrize("by_environment", [True, False])
def test_what_cannot_be_written_is_blamed_on_whose_it_is_and_the_rest_is_kept(
    store: Path, by_environment: bool
) -> None:
    def score(sample: Sample) -> bool:
        assert isinstance(sample.trajectory, Trajectory)
        if by_environment:
            sample.trajectory.__pydantic_extra__ = {"note": object()}
        else:
            sample.metadata["note"] = object()
        return True

    (sample,) = run(rows(1), EvalConfig(endpoint=ECHO, score_fn=score), store=store).samples

    assert sample.failure is not None
    assert sample.failure.kind == "WireError"
    assert sample.input == rows(1)[0]
    assert sample["question"] == "Say 0"
    if by_environment:
        assert sample.failure.boundary is Boundary.ENVIRONMENT
        assert sample.trajectory is None
    else:
        assert sample.failure.boundary is Boundary.SCORER
        assert sample.response == "Say 0"


def test_an_answer_that_cannot_be_written_is_blamed_on_the_agent(store: Path) -> None:
    def answer(sample: Sample) -> Trajectory:
        said = [Message(role="assistant", content="Say 0")]
        return Trajectory(messages=said).model_copy(update={"note": object()})

    (sample,) = run(rows(1), EvalConfig(agent=answer, score_fn=right), store=store).samples

    assert sample.failure is not None
    assert (sample.failure.boundary, sample.failure.kind) == (Boundary.AGENT, "WireError")


def test_one_input_that_is_forbidden_fails_alone(store: Path) -> None:
    refused = {"error": {"status": 403, "message": "flagged"}}
    config = EvalConfig(
        endpoint=scripted(refused, "Say 1", "Say 2"),
        score_fn=right,
        client=NO_RETRIES,
        concurrency=1,
    )

    report = run(rows(3), config, store=store)

    assert report.summary.judged_samples == 2


def test_a_run_in_which_everything_is_forbidden_is_given_up(store: Path) -> None:
    refused = {"error": {"status": 403, "message": "no access"}}
    config = EvalConfig(
        endpoint=scripted(refused, loop=True), score_fn=right, client=NO_RETRIES, concurrency=1
    )

    with pytest.raises(AccessDenied, match="no access"):
        run(rows(50), config, store=store)


def test_what_is_done_does_not_wait_for_a_slow_dataset(store: Path) -> None:
    recorded: list[int] = []

    def stream() -> Iterator[dict[str, Any]]:
        yield from rows(4)
        deadline = time.monotonic() + PATIENCE_S
        with Store.open(store) as opened:
            while opened.run().totals.recorded < 4 and time.monotonic() < deadline:
                time.sleep(0.005)
            recorded.append(opened.run().totals.recorded)
        yield {"id": "last", "question": "x", "answer": "x"}

    run(stream(), EvalConfig(endpoint=ECHO, score_fn=right, concurrency=1), store=store)

    assert recorded == [4]


_Place = tuple[str, int, int | None, int | None]
"""A result's sample, repeat, index and group."""


def moved(store: Path, after: list[dict[str, Any]]) -> list[_Place]:
    """What two of three rows give that lost a repeat and go on among other rows."""
    broken = {"r0#1", "r1#0"}

    def score(sample: Sample) -> bool:
        if sample.rollout_id in broken:
            raise ValueError("not now")
        return True

    config = EvalConfig(endpoint=ECHO, score_fn=score, repeats=2)
    run(rows(3), config, store=store)
    broken.clear()
    report = run(after, config, store=store, resume=Resume(allow_changed_dataset=True))
    assert report.summary.samples == len({row["id"] for row in [*rows(3), *after]})
    with Store.open(store) as opened:
        found = opened.run().results()
        return [(row.sample_id, row.repeat, row.index, row.group_index) for row in found]


def test_repeats_of_a_sample_stay_together_when_its_row_has_moved(store: Path) -> None:
    new = {"id": "new", "question": "x", "answer": "x"}

    found = moved(store, [new, *rows(3)])

    assert found == [
        ("r0", 0, 0, 0),
        ("r0", 1, 0, 0),
        ("r1", 0, 1, 1),
        ("r1", 1, 1, 1),
        ("r2", 0, 2, 2),
        ("r2", 1, 2, 2),
        ("new", 0, 10**9, 10**9),
        ("new", 1, 10**9, 10**9),
    ]


def test_rows_in_another_order_keep_their_places(store: Path) -> None:
    found = moved(store, rows(3)[::-1])

    assert [(name, group) for name, _, _, group in found] == [
        ("r0", 0),
        ("r0", 0),
        ("r1", 1),
        ("r1", 1),
        ("r2", 2),
        ("r2", 2),
    ]


def test_time_in_the_queue_of_requests_is_nobodys(store: Path) -> None:
    config = EvalConfig(
        endpoint=scripted("Say 0", latency_s=0.05, loop=True),
        score_fn=lambda sample: True,
        client=ClientSettings(concurrency=1),
        timeout_s=1.5,
        concurrency=40,
    )

    # Together the requests take two seconds, one after the other.
    report = run(rows(40), config, store=store)

    assert report.summary.judged_samples == 40
    assert report.summary.latency is not None
    assert report.summary.latency.p95 is not None
    assert report.summary.latency.p95 < 1.5


class _Busy(BasicEnvironment):
    async def step(self, action: Message) -> Step:
        time.sleep(0.2)
        return await super().step(action)


def test_a_rollout_that_never_waits_is_late_all_the_same(store: Path) -> None:
    config = EvalConfig(
        endpoint=ECHO,
        score_fn=right,
        environment=lambda sample: _Busy(),
        timeout_s=0.1,
    )

    (sample,) = run(rows(1), config, store=store).samples

    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.ENVIRONMENT
    assert sample.failure.message == "the sample was not finished within 0.1 s"
    assert sample.response == "Say 0"


def test_a_score_outside_the_scale_fails_its_sample(store: Path) -> None:
    def score(sample: Sample) -> float:
        return 2.0 if sample.id == "r1" else -1.0

    report = run(rows(3), EvalConfig(endpoint=ECHO, score_fn=score, bounds=(-1, 1)), store=store)

    assert report.summary.judged_samples == 2
    assert report.samples[1].failure is not None
    assert "the score 2.0 is outside the bounds -1 to 1" in report.samples[1].failure.message
