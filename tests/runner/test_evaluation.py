"""`evaluate`: what is recorded, and what a failure leaves."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.agents import Limits
from assay.datasets import PromptTemplate, load_samples
from assay.environments import CalculatorEnvironment
from assay.errors import AccessDenied, BadRow, ConfigError, StoreError
from assay.runner import EvalConfig, Progress
from assay.store import Run, Store
from assay.store.insert_rows import InsertRow, build_result_row
from assay.types import (
    Boundary,
    Endpoint,
    EvaluateResult,
    Message,
    Metric,
    Sample,
    Score,
    Status,
    StepOutput,
    Trajectory,
)
from runner_runs import ECHO, NO_RETRIES, right, rows, run, scripted


def test_every_sample_is_rolled_out_scored_and_recorded(store: Path) -> None:
    report = run(rows(25), EvalConfig(endpoint=ECHO, score_fn=right), store=store)

    assert report.mean == 1.0
    assert report.summary.judged_samples == 25
    assert len(report.samples) == 25
    first = report.samples[0]
    assert first.id == "r0"
    assert first.reward == 1.0
    assert first.status is Status.COMPLETED
    assert isinstance(first.trajectory, Trajectory)
    assert first.trajectory.termination_reason == "agent"
    assert [sample.index for sample in report.samples] == list(range(25))
    assert [sample.id for sample in report.samples[-2:]] == ["r23", "r24"]


def test_rows_without_a_question_are_asked_the_prompt_that_they_fill(store: Path) -> None:
    template = PromptTemplate("Write about {topic}.")
    config = EvalConfig(endpoint=ECHO, score_fn=right, prepare_messages=template)
    topics = [{"topic": "bread", "answer": "Write about bread."}, {"topic": "sea", "answer": "no"}]

    report = run(topics, config, store=store)

    assert [sample.reward for sample in report.samples] == [1.0, 0.0]
    assert [sample.prompt for sample in report.samples] == [
        "Write about bread.",
        "Write about sea.",
    ]
    limited = run(load_samples(topics), replace(config, max_samples=1), store=store)
    assert limited.summary.samples == 1


@pytest.mark.parametrize("score_fn", [right, None])
def test_an_environment_without_rewards_is_recorded_with_the_trajectory(
    score_fn: Any, store: Path
) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=score_fn, environment="calculator")

    report = run(rows(1), config, store=store)

    (sample,) = report.samples
    assert sample.score is not None
    assert sample.trajectory is not None
    assert sample.score.trajectory_info == {
        "duration": sample.trajectory.duration,
        "steps": 1,
        "termination_reason": "agent",
    }
    assert sample.trajectory.session == {"environment": "CalculatorEnvironment"}


def test_a_result_with_steps_of_its_own_is_told_of_the_trajectory() -> None:
    own = [StepOutput(step_index="a", base_reward=1.0)]
    config = EvalConfig(
        endpoint=ECHO,
        score_fn=lambda sample: EvaluateResult(score=1.0, step_outputs=own),
        environment="calculator",
    )

    (sample,) = run(rows(1), config).samples

    assert sample.score is not None
    assert list(sample.score.step_outputs or ()) == own
    assert (sample.score.trajectory_info or {})["steps"] == 1


@pytest.mark.parametrize("answered_by", [{"endpoint": ECHO}, {"agent": lambda sample: "new"}])
def test_a_score_of_the_dataset_is_not_the_score_of_a_new_answer(
    answered_by: dict[str, Any],
) -> None:
    recorded = Sample(id="a", prompt="old", score=EvaluateResult(score=1.0))

    report = run([recorded], EvalConfig(score_fn=lambda sample: sample, **answered_by))

    (sample,) = report.samples
    assert sample.reward is None
    assert sample.failure is not None
    assert "returned the sample without setting its `score`" in sample.failure.message


def test_a_slice_of_the_samples_is_read_in_one_pass(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(rows(9), EvalConfig(endpoint=ECHO, score_fn=right), store=store)
    begun: list[str] = []
    samples = Run.samples

    def counted(self: Run) -> Iterator[Sample]:
        begun.append(self.id)
        return samples(self)

    monkeypatch.setattr(Run, "samples", counted)

    for place in (slice(None), slice(2, 7, 2), slice(None, None, -1), slice(-2, 1, -3)):
        begun.clear()
        assert [each.id for each in report.samples[place]] == [f"r{n}" for n in range(9)[place]]
        assert len(begun) == 1

    assert report.samples[5:2] == report.samples[20:] == []


def test_the_documented_example_runs_as_written(store: Path) -> None:
    def score_fn(sample: Sample) -> Score:
        answer = sample.trajectory.messages[-1].text if sample.trajectory else sample.response
        correct = answer.strip() == sample.ground_truth
        return Score(metrics=(Metric("correct", float(correct), weight=1.0),))

    config = EvalConfig(
        endpoint=scripted(
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "1", "name": "calculate", "arguments": {"expression": "5+3"}}
                ],
            },
            "8",
            by="turn",
        ),
        score_fn=score_fn,
        prepare_messages=lambda s: [Message(role="user", content=s["question"])],
        environment=lambda s: CalculatorEnvironment(),
    )

    report = run([{"question": "What is 5 + 3?", "answer": "8"}], config, store=store)

    sample = report.samples[0]
    assert sample.trajectory is not None
    assert [message.role for message in sample.trajectory.messages] == (
        ["user", "assistant", "tool", "assistant"]
    )
    assert sample.score is not None
    assert sample.score.metrics["correct"].value == 1.0
    assert sample.reward == 1.0
    assert report.summary.metrics["correct"].interval.mean == 1.0


def test_an_async_scorer_and_prepared_dicts_work(store: Path) -> None:
    async def score(sample: Sample) -> float:
        await asyncio.sleep(0)
        return 0.25

    config = EvalConfig(
        endpoint=ECHO,
        score_fn=score,
        prepare_messages=lambda s: [{"role": "user", "content": s["question"].upper()}],
    )

    report = run(rows(2), config, store=store)

    assert report.mean == 0.25
    assert report.samples[1].response == "SAY 1"


def test_without_an_endpoint_the_samples_are_scored_as_they_are(store: Path) -> None:
    recorded = [
        {
            "messages": [
                {"role": "user", "content": "2+2?"},
                {"role": "assistant", "content": "4"},
            ],
            "ground_truth": "4",
        }
    ]

    report = run(recorded, EvalConfig(score_fn=right), store=store)

    assert report.mean == 1.0
    assert report.samples[0].trajectory is None


def test_the_environments_own_reward_is_the_score_when_there_is_no_scorer(store: Path) -> None:
    act = {"role": "assistant", "tool_calls": [{"name": "act", "arguments": {"action": "left"}}]}
    config = EvalConfig(
        endpoint=scripted(act, loop=True),
        environment="gym:CliffWalking-v1",
        limits=Limits(max_turns=3),
    )

    report = run([{"prompt": "Walk.", "answer": None}], config, store=store)

    sample = report.samples[0]
    assert sample.reward == -3.0
    assert sample.status is Status.TRUNCATED
    assert sample.is_trajectory_evaluation()
    assert sample.score is not None
    assert sample.score.trajectory_info is not None
    assert sample.score.trajectory_info["termination_reason"] == "max_turns"


def test_a_scorers_result_carries_the_environments_steps(store: Path) -> None:
    act = {"role": "assistant", "tool_calls": [{"name": "act", "arguments": {"action": "left"}}]}
    config = EvalConfig(
        endpoint=scripted(act, loop=True),
        environment="gym:CliffWalking-v1",
        score_fn=lambda sample: 1.0,
        limits=Limits(max_turns=2),
    )

    sample = run([{"prompt": "Walk."}], config, store=store).samples[0]

    assert sample.reward == 1.0
    assert sample.score is not None
    assert sample.score.step_outputs is not None
    assert len(sample.score.step_outputs) == 2


def test_a_failed_assertion_of_a_scorer_is_a_failure_and_no_score(store: Path) -> None:
    """In the function of an evaluation test it is a verdict; a scorer may assert what it needs."""

    def picky(sample: Sample) -> bool:
        assert sample.id != "r1"
        return True

    report = run(rows(4), EvalConfig(endpoint=ECHO, score_fn=picky), store=store)

    assert (report.summary.failed, report.mean) == ({"scorer": 1}, 1.0)


def test_a_scorer_that_raises_is_kept_as_a_failure_and_the_others_go_on(store: Path) -> None:
    def picky(sample: Sample) -> bool:
        if sample.id in ("r3", "r7", "r50"):
            raise KeyError("no such column")
        return True

    report = run(rows(100), EvalConfig(endpoint=ECHO, score_fn=picky), store=store)

    assert report.summary.judged_samples == 97
    assert report.summary.failed == {"scorer": 3}
    assert report.mean == 1.0
    failed = report.samples[3]
    assert failed.status is Status.FAILED
    assert failed.reward is None
    assert failed.failure is not None
    assert failed.failure.boundary is Boundary.SCORER
    assert failed.failure.kind == "KeyError"
    assert failed.failure.traceback is not None
    assert "picky" in failed.failure.traceback
    assert failed.trajectory is not None


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "1.0", [1]])
def test_a_scorer_that_returns_no_result_is_a_failure_and_never_zero(
    store: Path, value: object
) -> None:
    report = run(rows(2), EvalConfig(endpoint=ECHO, score_fn=lambda sample: value), store=store)

    assert report.mean is None
    assert report.summary.failed == {"scorer": 2}


def test_an_invalid_result_is_recorded_but_not_averaged(store: Path) -> None:
    def half(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=1.0, is_score_valid=sample.id == "r0", reason="unsure")

    report = run(rows(2), EvalConfig(endpoint=ECHO, score_fn=half), store=store)

    assert report.mean == 1.0
    assert report.summary.invalid == 1
    assert report.summary.failed == {}


def test_a_broken_endpoint_fails_its_sample_only(store: Path) -> None:
    endpoint = scripted("one", {"error": {"status": 400}}, "three")
    config = EvalConfig(endpoint=endpoint, score_fn=lambda s: 1.0, client=NO_RETRIES, concurrency=1)

    report = run(rows(3), config, store=store)

    assert [sample.status for sample in report.samples] == (
        [Status.COMPLETED, Status.FAILED, Status.COMPLETED]
    )
    failure = report.samples[1].failure
    assert failure is not None
    assert failure.boundary is Boundary.ENDPOINT
    assert not failure.retryable


@pytest.mark.parametrize(
    ("broken", "boundary"),
    [
        ({"prepare_messages": lambda s: [{"content": "no role"}]}, "dataset"),
        ({"prepare_messages": lambda s: s["missing"]}, "dataset"),
        ({"environment": lambda s: 1 / 0}, "environment"),
    ],
)
def test_each_failure_is_attributed_to_its_boundary(
    store: Path, broken: dict[str, Any], boundary: str
) -> None:
    report = run(rows(2), EvalConfig(endpoint=ECHO, score_fn=right, **broken), store=store)

    assert report.summary.failed == {boundary: 2}


def test_a_refused_key_on_the_first_call_stops_the_run_with_one_error(store: Path) -> None:
    config = EvalConfig(
        endpoint=scripted({"error": {"status": 401}}, loop=True), score_fn=right, concurrency=5
    )

    with pytest.raises(AccessDenied):
        run(rows(50), config, store=store)

    with Store.open(store) as opened:
        assert opened.run().row().status == "failed"
        assert list(opened.run().results()) == []


def test_a_key_refused_later_is_a_failure_like_any_other(store: Path) -> None:
    config = EvalConfig(
        endpoint=scripted("one", {"error": {"status": 401}}, "three"),
        score_fn=lambda s: 1.0,
        concurrency=1,
    )

    assert run(rows(3), config, store=store).summary.failed == {"endpoint": 1}


def test_a_sample_that_takes_too_long_has_failed(store: Path) -> None:
    config = EvalConfig(
        endpoint=Endpoint(provider="mock", model="echo", extra_params={"latency_s": 5}),
        score_fn=right,
        timeout_s=0.02,
    )

    report = run(rows(2), config, store=store)

    assert report.summary.failed == {"endpoint": 2}
    failure = report.samples[0].failure
    assert failure is not None
    assert failure.message == "the sample was not finished within 0.02 s"


def test_repeats_share_a_group_and_are_averaged_first(store: Path) -> None:
    config = EvalConfig(
        endpoint=scripted("yes", "no", loop=True),
        score_fn=lambda s: s.response == "yes",
        repeats=4,
        concurrency=1,
    )

    report = run(rows(3), config, store=store)

    assert report.summary.samples == 3
    assert report.summary.results == 12
    assert report.mean == 0.5
    assert [rate.k for rate in report.summary.pass_at_k][:2] == [1, 2]
    group = [sample for sample in report.samples if sample.id == "r1"]
    assert {sample.group_index for sample in group} == {1}
    assert len({sample.rollout_id for sample in group}) == 4


def test_the_scorer_may_block_without_stalling_the_rollouts(store: Path) -> None:
    together = threading.Barrier(4, timeout=180)

    def score(sample: Sample) -> bool:
        together.wait()
        return True

    report = run(rows(4), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    assert report.mean == 1.0


def test_a_bad_row_late_in_a_stream_keeps_what_was_done(store: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield from rows(10)
        yield {"nothing": "known"}

    with pytest.raises(BadRow, match="nothing"):
        run(stream(), EvalConfig(endpoint=ECHO, score_fn=right), store=store)

    with Store.open(store) as opened:
        assert len(list(opened.run().results())) == 10
        assert opened.run().row().status == "failed"


def test_rows_are_read_no_further_ahead_than_samples_may_be_in_progress(store: Path) -> None:
    read = 0
    most_ahead = []

    def stream() -> Iterator[dict[str, Any]]:
        nonlocal read
        for row in rows(20):
            read += 1
            yield row

    def score(sample: Sample) -> bool:
        most_ahead.append(read - int(sample.id[1:]))
        return True

    run(stream(), EvalConfig(endpoint=ECHO, score_fn=score, concurrency=1), store=store)

    assert most_ahead == [1] * 20


def test_an_error_of_the_dataset_stands_behind_the_samples_before_it(store: Path) -> None:
    def stream() -> Iterator[Sample]:
        for number in range(7):
            yield Sample(id=f"s{number}", prompt="x")
        raise BadRow("no more")

    config = EvalConfig(endpoint=ECHO, score_fn=right, concurrency=5)
    with pytest.raises(BadRow, match="no more"):
        run(stream(), config, store=store)

    with Store.open(store) as opened:
        assert [row.sample_id for row in opened.run().results()] == [f"s{n}" for n in range(7)]


@pytest.mark.parametrize("count", [49, 50, 51, 100])
def test_samples_that_end_together_are_all_recorded(store: Path, count: int) -> None:
    seen: list[int] = []

    report = run(
        rows(count),
        EvalConfig(endpoint=ECHO, score_fn=right),
        store=store,
        watch=lambda progress: seen.append(progress.done),
    )

    assert report.summary.judged_samples == count
    assert seen == list(range(1, count + 1))


def test_the_progress_counts_what_could_not_be_written_as_failed(store: Path) -> None:
    def spoil(sample: Sample) -> bool:
        if sample.id == "r1":
            sample.metadata["handle"] = object()
        return True

    last: list[tuple[int, int, float]] = []

    def watch(progress: Progress) -> None:
        last[:] = [(progress.done, progress.failed, progress.cost_usd)]

    run(rows(3), EvalConfig(endpoint=ECHO, score_fn=spoil), store=store, watch=watch)

    assert last == [(2, 1, 0.0)]


def test_a_file_is_checked_as_a_whole_before_anything_is_paid_for(
    store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"question":"fine"}\n{"question":')
    # Loopback port 9 is closed: a call would be an endpoint failure, not a bad row.
    paid = Endpoint(provider="openai", model="m", api_base="http://127.0.0.1:9/v1", api_key="k")

    with pytest.raises(BadRow, match=r"data\.jsonl:2"):
        run(file, EvalConfig(endpoint=paid, score_fn=right), store=store)

    assert not store.exists()


def test_a_store_that_cannot_be_written_stops_the_run_loudly(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise StoreError("the disk is full", where="assay.db")

    monkeypatch.setattr("assay.store.Writer.submit", full)

    with pytest.raises(StoreError, match="the disk is full"):
        run(rows(5000), EvalConfig(endpoint=ECHO, score_fn=right), store=store)


def test_a_sample_that_cannot_be_recorded_ends_the_run_and_costs_no_other(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(key: str, sample: Sample, repeat: int) -> InsertRow:
        if sample.id == "r1":
            raise ValueError("no entry for this one")
        return build_result_row(key, sample, repeat)

    async def at_once(sample: Sample) -> bool:
        return True  # without a thread: the three end in one turn of the event loop

    monkeypatch.setattr("assay.runner.engines.in_process.build_result_row", spoiled)

    with pytest.raises(ValueError, match="no entry for this one"):
        run(rows(3), EvalConfig(endpoint=ECHO, score_fn=at_once), store=store)

    with Store.open(store) as opened:
        assert [row.sample_id for row in opened.run().results()] == ["r0", "r2"]


def test_the_progress_tells_what_is_recorded(store: Path) -> None:
    seen: list[tuple[int, float | None]] = []

    def watch(progress: Progress) -> None:
        seen.append((progress.done, progress.mean))
        assert progress.total == 10

    run(rows(10), EvalConfig(endpoint=ECHO, score_fn=right), store=store, watch=watch)

    assert seen[-1] == (10, 1.0)


def test_a_missing_key_is_found_before_a_run_begins(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        run(rows(1), EvalConfig(endpoint=Endpoint(provider="openai", model="m"), score_fn=right))

    assert not store.exists()


def test_a_value_that_no_file_can_hold_fails_its_sample_only(store: Path) -> None:
    def spoil(sample: Sample) -> bool:
        if sample.id == "r1":
            sample.metadata["handle"] = object()
        return True

    report = run(rows(3), EvalConfig(endpoint=ECHO, score_fn=spoil), store=store)

    assert report.summary.failed == {"scorer": 1}
    failure = report.samples[1].failure
    assert failure is not None
    assert failure.kind == "WireError"
    assert report.summary.judged_samples == 2


def test_skipped_rows_are_told(store: Path) -> None:
    stream = load_samples([*rows(2), {"nothing": "known"}], on_bad_row="skip")

    report = run(stream, EvalConfig(endpoint=ECHO, score_fn=right), store=store)

    assert report.skipped is not None
    assert report.skipped.count == 1
    assert report.summary.samples == 2


def test_an_exception_without_words_is_still_a_failure(store: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def score(sample: Sample) -> bool:
        raise Mute

    report = run(rows(1), EvalConfig(endpoint=ECHO, score_fn=score), store=store)

    failure = report.samples[0].failure
    assert failure is not None
    assert failure.message == "(reading the error message failed: RuntimeError)"
