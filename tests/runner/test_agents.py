"""`agent=`: the agent that a user has, evaluated and recorded like a model."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay.agents import RunContext
from assay.errors import ConfigError, RunStopped
from assay.runner import EvalConfig, EvalReport, Resume, evaluate, evaluate_sync
from assay.types import (
    Boundary,
    Endpoint,
    EvaluateResult,
    Metric,
    ModelCall,
    Sample,
    Trajectory,
    Usage,
)
from make import asked, said

ROWS = [
    {"id": "france", "question": "Capital of France?", "answer": "Paris"},
    {"id": "peru", "question": "Capital of Peru?", "answer": "Lima"},
]


def is_right(sample: Sample) -> bool:
    return bool(sample.response == sample.ground_truth)


PROMPT = "Paris"


def say_prompt(sample: Sample) -> str:
    return PROMPT


def run(tmp_path: Path, rows: Any = ROWS, resume: Any = None, **settings: Any) -> EvalReport:
    config = EvalConfig(**{"score_fn": is_right, **settings})
    return asyncio.run(evaluate(rows, config, store=tmp_path / "store.db", resume=resume))


def answer(sample: Sample) -> str:
    return "Paris" if "France" in sample["question"] else "Quito"


async def answer_async(sample: Sample) -> str:
    return answer(sample)


class Protocol:
    name = "own"
    identity = "own 1"
    closed = 0

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        reply = said(answer(sample))
        usage = Usage(input_tokens=3, output_tokens=1, cost_usd=0.5)
        return Trajectory(messages=[reply], calls=[ModelCall(usage=usage)], duration=2.0)

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    "agent",
    [
        answer,
        answer_async,
        Protocol(),
        f"cmd:{sys.executable} -c \"print('Paris' if 'France' in input() else 'Quito')\"",
    ],
    ids=["function", "async", "protocol", "command"],
)
def test_every_kind_of_agent_is_evaluated(agent: Any, tmp_path: Path) -> None:
    report = run(tmp_path, agent=agent)

    assert report.mean == 0.5
    assert [sample.response for sample in report.samples] == ["Paris", "Quito"]
    for sample in report.samples:
        assert sample.trajectory is not None
        assert sample.trajectory.messages[0].text == sample["question"]
        assert sample.trajectory.duration is not None
    assert report.spec.config["agent"]["name"]
    assert report.spec.config["endpoint"] is None


def test_a_model_as_agent_is_the_same_run_as_its_endpoint(tmp_path: Path) -> None:
    by_agent = EvalConfig(agent="mock:echo", score_fn=is_right)
    by_endpoint = EvalConfig(endpoint="mock:echo", score_fn=is_right)

    assert by_agent.fingerprint() == by_endpoint.fingerprint()
    assert by_agent.agent is None
    assert by_agent.endpoint == Endpoint(provider="mock", model="echo")


def test_an_agent_never_sees_the_expected_answer(tmp_path: Path) -> None:
    seen: list[str] = []

    def spy(sample: Sample, context: RunContext) -> str:
        seen.append(f"{sample!r} {sample.model_dump()} {context!r}")
        return "?"

    report = run(tmp_path, agent=spy)

    assert not any("Paris" in text or "Lima" in text for text in seen)
    assert [sample.ground_truth for sample in report.samples] == ["Paris", "Lima"]
    assert [sample.input["answer"] for sample in report.samples] == ["Paris", "Lima"]


def test_prepared_messages_are_the_prompt_of_the_agent(tmp_path: Path) -> None:
    def repeat(sample: Sample) -> str:
        return " | ".join(message.text for message in sample.messages)

    report = run(
        tmp_path,
        agent=repeat,
        prepare_messages=lambda sample: [asked("Be brief."), asked(sample["question"])],
    )

    assert report.samples[0].response == "Be brief. | Capital of France?"
    assert len(report.samples[0].messages) == 3


def test_a_failure_belongs_to_the_agent_and_is_repeated_on_resume(tmp_path: Path) -> None:
    broken = [True]
    calls: list[str] = []

    def fails(sample: Sample) -> str:
        calls.append(sample.id)
        if broken[0] and sample.id == "peru":
            raise ValueError("no map")
        return "Paris"

    first = run(tmp_path, agent=fails)
    failure = first.samples[1].failure
    broken[0] = False
    second = run(tmp_path, agent=fails, resume=Resume(first.run_id))

    assert failure is not None
    assert (failure.boundary, failure.kind, failure.message) == (
        Boundary.AGENT,
        "ValueError",
        "no map",
    )
    assert "fails" in (failure.traceback or "")
    assert sorted(calls) == ["france", "peru", "peru"]
    assert second.summary.failed == {}


def test_an_agent_that_always_fails_stops_the_run(tmp_path: Path) -> None:
    calls: list[str] = []

    def fails(sample: Sample) -> str:
        calls.append(sample.id)
        raise ConnectionRefusedError("nobody answers")

    rows = [{"id": str(number), "prompt": "?"} for number in range(500)]
    with pytest.raises(RunStopped, match="all failed at the agent: ConnectionRefusedError"):
        run(tmp_path, rows, agent=fails)

    assert len(calls) < 50


async def answer_slowly(sample: Sample) -> str:
    await asyncio.sleep(0.05)
    return answer(sample)


@pytest.mark.parametrize("agent", [answer_slowly, Protocol])
def test_evaluations_at_once_may_share_a_configuration(tmp_path: Path, agent: Any) -> None:
    given = agent() if isinstance(agent, type) else agent
    config = EvalConfig(agent=given, score_fn=is_right, concurrency=1)

    async def evaluate_both() -> list[EvalReport]:
        store = tmp_path / "store.db"
        longer = [{**row, "id": f"{n}"} for n in range(3) for row in ROWS[:1]]
        short = evaluate(ROWS[:1], config, store=store)
        return list(await asyncio.gather(short, evaluate(longer, config, store=store)))

    reports = asyncio.run(evaluate_both())

    assert [report.mean for report in reports] == [1.0, 1.0]
    assert [report.summary.failed for report in reports] == [{}, {}]
    assert getattr(given, "closed", 1) == 1


def test_threads_may_share_a_configuration(tmp_path: Path) -> None:
    everyone_is_in = threading.Barrier(2)

    def answer_together(sample: Sample) -> str:
        everyone_is_in.wait(30)
        return answer(sample)

    config = EvalConfig(agent=answer_together, score_fn=is_right)

    def evaluate_one(name: str) -> EvalReport:
        return evaluate_sync(ROWS[:1], config, store=tmp_path / name)

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(evaluate_one, ["a.db", "b.db"]))

    assert [report.mean for report in reports] == [1.0, 1.0]


def test_failures_can_be_scored(tmp_path: Path) -> None:
    def fails(sample: Sample) -> str:
        raise ValueError("no map")

    def score(sample: Sample) -> float:
        return 0.0 if sample.failure is not None else 1.0

    report = run(tmp_path, agent=fails, score_fn=score, score_failures=True)

    assert (report.mean, report.summary.failed) == (0.0, {})
    assert all(sample.failure is None for sample in report.samples)


def test_a_blocking_function_is_abandoned_at_the_time_limit(tmp_path: Path) -> None:
    released = threading.Event()

    def hangs(sample: Sample) -> str:
        if sample.id == "peru":
            released.wait(60)
        return "Paris"

    try:
        report = run(tmp_path, agent=hangs, timeout_s=3.0)
    finally:
        released.set()

    failure = report.samples[1].failure
    assert failure is not None
    assert (failure.boundary, failure.kind) == (Boundary.AGENT, "TimeoutError")
    assert report.samples[0].reward == 1.0


def test_time_usage_and_cost_are_the_agents_own(tmp_path: Path) -> None:
    agent = Protocol()

    reported = run(tmp_path, agent=agent)
    unknown = run(tmp_path, agent=answer)

    assert reported.summary.cost_usd.value == 1.0
    assert reported.samples[0].trajectory is not None
    assert reported.samples[0].trajectory.duration == 2.0
    assert unknown.summary.cost_usd.value is None
    assert agent.closed == 1


def test_a_budget_is_enforced_by_the_cost_that_the_agent_reports(tmp_path: Path) -> None:
    rows = [{"id": str(number), "question": "?"} for number in range(50)]

    with pytest.raises(RunStopped, match="max_cost_usd=3"):
        run(tmp_path, rows, agent=Protocol(), max_cost_usd=3.0, concurrency=1)
    with pytest.raises(RunStopped, match="cost of a model call is unknown"):
        run(tmp_path, rows, agent=answer, max_cost_usd=3.0)


def test_an_agent_may_call_the_model_of_the_run(tmp_path: Path) -> None:
    def asks(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        return context.client.ask([asked("Say Paris")]).message.text.removeprefix("Say ")

    async def asks_async(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        reply = await context.client.complete([asked("Say Paris")])
        return reply.message.text.removeprefix("Say ")

    for agent in (asks, asks_async):
        report = run(tmp_path, agent=agent, endpoint="mock:echo")
        trajectory = report.samples[0].trajectory
        assert trajectory is not None
        assert len(trajectory.calls) == 1
        assert report.samples[0].response == "Paris"


def test_another_agent_is_another_run(tmp_path: Path) -> None:
    first = run(tmp_path, agent=answer)

    with pytest.raises(ConfigError, match="agent"):
        run(tmp_path, agent=answer_async, resume=Resume(first.run_id))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": answer, "environment": "calculator"}, "`environment` applies to a model"),
        ({"agent": "mock:echo", "endpoint": "mock:echo"}, "both name a model"),
        ({"agent": 3}, "cannot be of type `int`"),
        ({"agent": lambda: "x"}, "cannot be called with a sample"),
        ({"agent": answer, "score_fn": []}, "the list of scorers is empty"),
        ({"agent": answer, "score_fn": [3]}, "is not callable"),
    ],
)
def test_a_contradiction_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvalConfig(**{"score_fn": is_right, **settings})


def test_each_scorer_of_a_list_is_a_metric(tmp_path: Path) -> None:
    async def length(sample: Sample) -> float:
        return len(sample.response) / 10

    def detailed(sample: Sample) -> Any:
        return EvaluateResult(metrics=[Metric("inner", 0.25)], reason="looked")

    plain = run(tmp_path, agent=answer, score_fn=[is_right, length, detailed])
    weighted = run(tmp_path, agent=answer, score_fn=[(is_right, 3), (length, 1), detailed])

    score = plain.samples[0].score
    assert score is not None
    assert score.score == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert {name: metric.score for name, metric in score.metrics.items()} == {
        "is_right": 1.0,
        "length": 0.5,
        "detailed": 0.25,
        "detailed.inner": 0.25,
    }
    assert "detailed: looked" in (score.reason or "")
    assert weighted.samples[0].reward == pytest.approx((3 * 1 + 0.5) / 4)
    assert plain.spec.config_fingerprint != weighted.spec.config_fingerprint


def test_a_run_is_not_resumed_with_another_constant_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, agent=say_prompt)
    assert run(tmp_path, agent=say_prompt, resume="latest").mean == 0.5

    monkeypatch.setattr(sys.modules[__name__], "PROMPT", "Lima")

    with pytest.raises(ConfigError, match=r"agent_globals\.PROMPT: '\w{8}' -> '\w{8}'"):
        run(tmp_path, agent=say_prompt, resume="latest")


def test_a_run_that_was_recorded_without_constants_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("assay.agents.function_agent.describe_globals", lambda function: {})
        run(tmp_path, ROWS[:1], agent=say_prompt)

    resumed = run(tmp_path, agent=say_prompt, resume=Resume(allow_changed_dataset=True))

    assert len(resumed.samples) == 2
    monkeypatch.setattr(sys.modules[__name__], "PROMPT", "Lima")
    with pytest.raises(ConfigError, match="PROMPT"):
        run(tmp_path, agent=say_prompt, resume=Resume(allow_changed_dataset=True))
