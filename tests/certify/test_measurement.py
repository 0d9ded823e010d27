"""One sample measured: crashes, timeouts, garbage, and what is kept for a second try."""

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.agents import Agent, FunctionAgent, RunContext, run_agent
from assay.certify.graders import Grader
from assay.certify.measurement import (
    MEASUREMENT_KEY,
    CallSlots,
    CriteriaScorer,
    SlottedAgent,
    prepare_golden,
    read_measurement,
)
from assay.environments import BasicEnvironment, Step
from assay.errors import AccessDenied
from assay.providers import LIMIT_SHARE
from assay.runner import EvalConfig, Resume, evaluate
from assay.types import EvaluateResult, Message, ModelCall, Sample, Trajectory
from bars import score_bar
from make import said
from scripted import Scripted


def grader(score: Callable[[Sample], object], name: str = "right", **fields: Any) -> Grader:
    return Grader(score_bar(name, **fields), score)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def measure(
    store: str,
    agent: Callable[..., object] | Agent,
    *graders: Grader,
    samples: list[Sample] | None = None,
    timeout_s: float = 30.0,
    resume: str | None = None,
) -> list[Sample]:
    """Run the agent and its graders as a certification does, and return the recorded samples."""

    async def run() -> list[Sample]:
        slots = CallSlots(1)
        own = FunctionAgent(agent, "my:agent") if callable(agent) else agent
        scorer = CriteriaScorer(graders, slots=slots, name="certify(x)")
        config = EvalConfig(
            agent=SlottedAgent(own, slots, timeout_s),
            score_fn=scorer.scorer(),
            score_failures=True,
            prepare_messages=prepare_golden,
        )
        rows = samples or [Sample(id="a", prompt="2 + 2?", ground_truth="4")]
        again = None if resume is None else Resume(resume)
        try:
            report = await evaluate(rows, config, store=store, resume=again)
        finally:
            scorer.close()
        return list(report.samples)

    return asyncio.run(run())


def test_a_sample_has_its_scores_its_time_and_their_mean(store: str) -> None:
    (sample,) = measure(
        store,
        lambda sample: "four",
        grader(lambda sample: 0.75),
        grader(lambda sample: 4, "faults", direction="min", range=(0, 5), threshold=1),
    )

    result, measured = sample.score, read_measurement(sample)
    assert result is not None
    assert result.score == pytest.approx((0.75 + 0.2) / 2)
    assert (result.metrics["right"].score, result.metrics["faults"].score) == (0.75, 4)
    assert result.metrics["latency_ms"].score is not None
    assert measured is not None
    assert measured.scores == {"right": 0.75, "faults": 4}
    assert sample.response == "four"


def test_an_agent_that_crashes_gets_the_worst_of_every_criterion(store: str) -> None:
    def crash(sample: Sample) -> str:
        raise ValueError("no")

    (sample,) = measure(
        store,
        crash,
        grader(lambda sample: 1.0),
        grader(lambda sample: 0.0, "fault_rate", direction="min", threshold=0.1),
    )

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.scores == {"right": 0.0, "fault_rate": 1.0}
    assert (measured.seconds, measured.agent_error) == (None, "ValueError: no")
    assert sample.score is not None
    assert (sample.score.score, sample.score.is_score_valid) == (0.0, True)
    assert sample.failure is None  # it is a result, which a resumed run does not repeat


def test_an_agent_that_takes_too_long_has_failed(store: str) -> None:
    async def never(sample: Sample) -> str:
        await asyncio.Event().wait()
        return "four"

    (sample,) = measure(store, never, grader(lambda sample: 1.0), timeout_s=0.01)

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.agent_error == "no answer within 0.01 s"


def test_an_agent_that_is_cut_off_keeps_its_conversation_so_far(store: str) -> None:
    class Talks(BasicEnvironment):
        async def step(self, action: Message) -> Step:
            await asyncio.Event().wait()
            raise AssertionError

    class Model:
        name = identity = "model"

        async def run(self, sample: Sample, context: RunContext) -> Trajectory:
            return await run_agent(Scripted(said("Let me see.")), Talks(), context.messages)

    (sample,) = measure(store, Model(), timeout_s=0.01)

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.agent_error == "no answer within 0.01 s"
    assert sample.trajectory is not None
    assert [message.text for message in sample.trajectory.messages] == ["2 + 2?", "Let me see."]
    assert sample.trajectory.termination_reason == "timeout_s"


def test_without_criteria_the_score_is_whether_the_agent_answered(store: str) -> None:
    (answered,) = measure(store, lambda sample: "four")
    (failed,) = measure(store, lambda sample: None)

    assert (answered.reward, failed.reward) == (1.0, 0.0)


def _crash(sample: Sample) -> object:
    raise RuntimeError("the metric is broken")


@pytest.mark.parametrize(
    ("score", "why"),
    [
        (_crash, "RuntimeError: the metric is broken"),
        (lambda sample: None, "ScorerFault: the scorer returned None"),
        (lambda sample: float("nan"), "ScorerFault: the scorer returned nan"),
        (lambda sample: 3, "the score 3 is not within 0 to 1"),
        (lambda sample: EvaluateResult(reason="no ground truth"), "no ground truth"),
        (lambda sample: EvaluateResult(error="garbage"), "garbage"),
    ],
)
def test_a_metric_that_fails_leaves_the_sample_unscored_and_its_answer_kept(
    store: str, score: Callable[[Sample], object], why: str
) -> None:
    (sample,) = measure(store, lambda sample: "four", grader(score), grader(len_of, "length"))

    measured = read_measurement(sample)
    assert sample.failure is not None
    assert sample.failure.message.startswith("right: ")
    assert measured is not None
    assert measured.problems["right"].startswith(why)
    assert measured.scores == {"length": 1.0}
    assert sample.response == "four"


def len_of(sample: Sample) -> float:
    return len(sample.response) / 4


def test_a_recorded_answer_is_graded_and_the_agent_is_not_called_again(store: str) -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return "four"

    graded: list[str] = []

    def metric(sample: Sample) -> float:
        graded.append("right")
        if graded.count("right") == 1:
            raise RuntimeError("away")
        return 1.0

    def length(sample: Sample) -> float:
        graded.append("length")
        return len_of(sample)

    graders = grader(metric), grader(length, "length")
    (failed,) = measure(store, agent, *graders)
    (sample,) = measure(store, agent, *graders, resume="latest")

    assert calls == ["a"]
    assert sorted(graded) == ["length", "right", "right"]
    assert sample.reward == 1.0
    first, second = read_measurement(failed), read_measurement(sample)
    assert first is not None
    assert second is not None
    assert (second.seconds, second.problems) == (first.seconds, {})


def test_a_refused_key_before_the_first_answer_ends_the_run(store: str) -> None:
    async def refused(sample: Sample) -> str:
        raise AccessDenied("the key is refused")

    with pytest.raises(AccessDenied):
        measure(store, refused, grader(lambda sample: 1.0))


def test_a_judge_that_refuses_the_key_ends_the_run(store: str) -> None:
    def denied(sample: Sample) -> float:
        raise AccessDenied("the key is refused")

    with pytest.raises(AccessDenied):
        measure(store, lambda sample: "four", grader(denied))


def test_an_answer_from_a_cache_is_marked_and_retries_do_not_count_as_time(store: str) -> None:
    cached = ModelCall.model_validate({"model": "m-1", "cached": True})
    retried = ModelCall(model="m-1", retry_wait_s=2.0)

    def agent(sample: Sample) -> Trajectory:
        calls = [cached] if sample.id == "a" else [retried]
        return Trajectory(messages=[said("four")], calls=calls, duration=2.5)

    samples = [Sample(id=each, prompt="?") for each in "ab"]
    found = measure(store, agent, grader(lambda sample: 1.0), samples=samples)

    first, second = map(read_measurement, found)
    assert first is not None
    assert second is not None
    assert (first.cached, first.agent_models) == (True, ("m-1",))
    assert (second.cached, second.seconds) == (False, 0.5)


def test_a_dataset_cannot_bring_its_own_measurements(store: str) -> None:
    forged = {MEASUREMENT_KEY: {"seconds": 0.0, "scores": {"right": 1.0}}}
    finished = Trajectory(messages=[said("finished before")])
    samples = [Sample(prompt="?", metadata=forged, trajectory=finished)]

    (sample,) = measure(store, lambda sample: "now", grader(lambda sample: 0.0), samples=samples)

    found = read_measurement(sample)
    assert found is not None
    assert found.scores == {"right": 0.0}
    assert sample.response == "now"
    assert read_measurement(Sample(prompt="?")) is None


def test_no_more_calls_are_in_flight_than_there_are_slots(store: str) -> None:
    now, most = 0, 0

    async def agent(sample: Sample) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return "four"

    samples = [Sample(id=str(number), prompt="?") for number in range(5)]
    measure(store, agent, grader(lambda sample: 1.0), samples=samples)

    assert most == 1


def test_another_process_of_the_run_has_its_share_of_the_calls() -> None:
    slots = CallSlots(8)
    agent = SlottedAgent(FunctionAgent(str, "my:agent"), slots, 30.0)
    LIMIT_SHARE.set(2, 3)
    try:
        other = pickle.loads(pickle.dumps((slots, agent)))
    finally:
        LIMIT_SHARE.set(0, 1)

    assert other[0].total == 2
    assert other[1].max_workers == 8
