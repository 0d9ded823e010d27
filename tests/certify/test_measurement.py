"""One sample measured: crashes, timeouts, garbage, and what is kept for a second try."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from assay.agents import run_agent
from assay.agents.certified_agent import Agent, AgentAnswer
from assay.agents.function_agent import FunctionAgent
from assay.certify.graders import Grader
from assay.certify.measurement import MEASUREMENT_KEY, AgentScorer, parse_repeat, read_measurement
from assay.environments import BasicEnvironment, Step
from assay.errors import AccessDenied, ScorerFault
from assay.store.stored_prompts import KeptRollout
from assay.types import EvaluateResult, Message, ModelCall, Sample, Trajectory
from bars import score_bar
from make import said
from scripted import Scripted


def grader(score: Callable[[Sample], object], name: str = "right", **fields: Any) -> Grader:
    return Grader(score_bar(name, **fields), score)


def measurer(
    agent: Callable[..., object], *graders: Grader, timeout_s: float = 30.0
) -> AgentScorer:
    made: Agent = FunctionAgent(agent, "my:agent")
    return AgentScorer(made, graders, slots=1, timeout_s=timeout_s, name="certify(x)")


def measure(made: AgentScorer, sample: Sample | None = None) -> tuple[EvaluateResult, Sample]:
    sample = sample or Sample(prompt="2 + 2?", ground_truth="4")
    try:
        return asyncio.run(_measured(made, sample)), sample
    finally:
        made.close()


async def _measured(made: AgentScorer, sample: Sample) -> EvaluateResult:
    return await made(sample)


def test_a_sample_holds_its_scores_its_time_and_its_goodness() -> None:
    result, sample = measure(
        measurer(
            lambda sample: "four",
            grader(lambda sample: 0.75),
            grader(lambda sample: 4, "faults", direction="min", range=(0, 5), threshold=1),
        )
    )

    assert result.score == pytest.approx((0.75 + 0.2) / 2)
    assert (result.metrics["right"].score, result.metrics["faults"].score) == (0.75, 4)
    assert result.metrics["latency_ms"].score is not None
    measured = read_measurement(sample)
    assert measured is not None
    assert measured.scores == {"right": 0.75, "faults": 4}
    assert sample.response == "four"


def test_an_agent_that_crashes_gets_the_worst_of_every_criterion() -> None:
    def crash(sample: Sample) -> str:
        raise ValueError("no")

    result, sample = measure(
        measurer(
            crash,
            grader(lambda sample: 1.0),
            grader(lambda sample: 0.0, "fault_rate", direction="min", threshold=0.1),
        )
    )

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.scores == {"right": 0.0, "fault_rate": 1.0}
    assert (measured.seconds, measured.agent_error) == (None, "ValueError: no")
    assert (result.score, result.is_score_valid) == (0.0, True)


def test_an_agent_that_takes_too_long_has_failed() -> None:
    async def never(sample: Sample) -> str:
        await asyncio.Event().wait()
        return "four"

    _, sample = measure(measurer(never, grader(lambda sample: 1.0), timeout_s=0.01))

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.agent_error == "no answer within 0.01 s"


def test_an_agent_that_is_cut_off_keeps_its_conversation_so_far() -> None:
    class Talks(BasicEnvironment):
        async def step(self, action: Message) -> Step:
            await asyncio.Event().wait()
            raise AssertionError

    class Model:
        name = identity = "model"
        sha256 = None

        async def answer(self, sample: Sample, *, seed: int | None = None) -> AgentAnswer:
            trajectory = await run_agent(Scripted(said("Let me see.")), Talks(), sample.messages)
            return AgentAnswer(trajectory, 0.0)

        async def close(self) -> None:
            return None

    made = AgentScorer(Model(), [], slots=1, timeout_s=0.01, name="certify(x)")
    _, sample = measure(made)

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.agent_error == "no answer within 0.01 s"
    assert sample.trajectory is not None
    assert [message.text for message in sample.trajectory.messages] == ["2 + 2?", "Let me see."]
    assert sample.trajectory.termination_reason == "timeout_s"


def test_without_criteria_an_answer_is_all_there_is_to_it() -> None:
    assert measure(measurer(lambda sample: "four"))[0].score == 1.0
    assert measure(measurer(lambda sample: None))[0].score == 0.0


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
    score: Callable[[Sample], object], why: str
) -> None:
    sample = Sample(prompt="2 + 2?")

    with pytest.raises(ScorerFault, match="right: "):
        measure(measurer(lambda sample: "four", grader(score), grader(len_of, "length")), sample)

    measured = read_measurement(sample)
    assert measured is not None
    assert measured.problems["right"].startswith(why)
    assert measured.scores == {"length": 1.0}
    assert sample.response == "four"


def len_of(sample: Sample) -> float:
    return len(sample.response) / 4


def test_what_was_answered_before_is_graded_and_not_asked_again() -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return "four"

    graded: list[float] = []

    def metric(sample: Sample) -> float:
        graded.append(1.0)
        if len(graded) == 1:
            raise RuntimeError("away")
        return 1.0

    failed = Sample(id="a", prompt="2 + 2?")
    with pytest.raises(ScorerFault):
        measure(measurer(agent, grader(metric), grader(len_of, "length")), failed)
    again = measurer(agent, grader(metric), grader(len_of, "length"))
    assert failed.trajectory is not None
    kept = KeptRollout(failed.trajectory, None, failed.metadata)
    again.find_kept = lambda sample: kept
    result, sample = measure(again, Sample(id="a", prompt="2 + 2?"))

    assert calls == ["a"]
    assert (result.metrics["right"].score, sample.response) == (1.0, "four")
    first, second = read_measurement(failed), read_measurement(sample)
    assert first is not None
    assert second is not None
    assert (second.seconds, second.problems) == (first.seconds, {})


def test_a_refused_key_is_no_result_before_anything_was_answered() -> None:
    async def refused(sample: Sample) -> str:
        raise AccessDenied("the key is refused")

    with pytest.raises(AccessDenied):
        measure(measurer(refused, grader(lambda sample: 1.0)))


def test_a_judge_that_refuses_the_key_ends_the_run() -> None:
    def denied(sample: Sample) -> float:
        raise AccessDenied("the key is refused")

    with pytest.raises(AccessDenied):
        measure(measurer(lambda sample: "four", grader(denied)))


def test_an_answer_from_a_cache_is_marked() -> None:
    call = ModelCall.model_validate({"model": "m-1", "cached": True})
    trajectory = Trajectory(messages=[said("four")], calls=[call])

    _, sample = measure(measurer(lambda sample: trajectory, grader(lambda sample: 1.0)))

    measured = read_measurement(sample)
    assert measured is not None
    assert (measured.cached, measured.agent_models) == (True, ("m-1",))


def test_a_dataset_cannot_bring_its_own_measurements() -> None:
    forged = {MEASUREMENT_KEY: {"seconds": 0.0, "scores": {"right": 1.0}}}
    sample = Sample(
        prompt="?", metadata=forged, trajectory=Trajectory(messages=[said("finished before")])
    )

    _, measured = measure(measurer(lambda sample: "now", grader(lambda sample: 0.0)), sample)

    found = read_measurement(measured)
    assert found is not None
    assert found.scores == {"right": 0.0}
    assert measured.response == "now"
    assert read_measurement(Sample(prompt="?")) is None


def test_repeats_are_told_apart() -> None:
    assert (parse_repeat(Sample(id="a#1", rollout_id="a#1#3")), parse_repeat(Sample(id="a"))) == (
        3,
        0,
    )


def test_no_more_calls_are_in_flight_than_there_are_slots() -> None:
    now, most = 0, 0

    async def agent(sample: Sample) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return "four"

    async def run() -> None:
        made = measurer(agent, grader(lambda sample: 1.0))
        await asyncio.gather(*(made(Sample(id=str(n), prompt="?")) for n in range(5)))
        made.close()

    asyncio.run(run())

    assert most == 1
