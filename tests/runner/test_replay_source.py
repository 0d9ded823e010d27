"""Runs whose model calls are answered from a recording: without a model, a key or a network."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from assay.agents import ModelAgent, RunContext, run_agent
from assay.environments import BasicEnvironment, Step
from assay.errors import ConfigError
from assay.gateway import Recording
from assay.providers import ModelClient
from assay.runner import EvalConfig, EvalReport, Resume, evaluate, record_calls
from assay.store import Store
from assay.types import Boundary, Endpoint, Message, Sample, ToolSpec, Trajectory
from model_apis import ModelApi
from runner_runs import ECHO, right, rows, run, scripted

# Of another machine, with a key that is not set: connecting would raise.
REMOTE = Endpoint(provider="openai", model="upstream-model", api_base="https://models.invalid/v1")


@pytest.fixture(autouse=True)
def _without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def refuse_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("a model was connected")

    monkeypatch.setattr("assay.runner.replay_source.connect", refuse)
    monkeypatch.setattr("assay.gateway.relay.Relay._post", refuse)


def record(folder: Path, report: EvalReport) -> Path:
    target = folder / "calls.jsonl"
    with Store.open(folder / "store.db") as store:
        record_calls(store, report.run_id, target)
    return target


def record_live(folder: Path, dataset: Any, config: EvalConfig) -> tuple[EvalReport, Path]:
    """Evaluate with a scripted server, and record its calls as those of a remote model."""

    async def scenario() -> EvalReport:
        async with ModelApi() as api:
            live = replace(config, endpoint=api.endpoint())
            return await evaluate(dataset, live, store=folder / "store.db")

    report = asyncio.run(scenario())
    return report, record(folder, report)


def says_capitals(sample: Sample) -> bool:
    return sample.response.isupper()


class Counter(BasicEnvironment):
    """Ends after three answers; its tool is offered, and never called."""

    tools = (ToolSpec(name="look", description="Look.", parameters={"type": "object"}),)

    def __init__(self) -> None:
        self._left = 3

    async def step(self, action: Message) -> Step:
        self._left -= 1
        if not self._left:
            return Step(terminated=True, reward=1.0)
        return Step(replies=(Message(role="user", content=f"{self._left} left"),), reward=0.0)


def test_a_model_agent_is_replayed_with_all_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EvalConfig(endpoint=scripted("a", "b", "c", loop=True), environment=Counter)
    before = run(rows(2), config, store=tmp_path / "store.db")
    recording = record(tmp_path, before)
    refuse_connections(monkeypatch)

    after = run(rows(2), replace(config, replay=recording), store=tmp_path / "store.db")

    assert after.replay is not None
    assert (after.replay.replayed, after.replay.live) == (6, 0)
    for then, now in zip(before.samples, after.samples, strict=True):
        assert then.trajectory is not None
        assert now.trajectory is not None
        assert now.trajectory.messages == then.trajectory.messages
        assert now.reward == then.reward
        latencies = [call.latency_s for call in now.trajectory.calls]
        assert latencies == [call.latency_s for call in then.trajectory.calls]
        assert now.trajectory.duration == then.trajectory.duration


def test_a_recorded_run_is_replayed_by_its_id(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right)
    before = run(rows(2), config, store=tmp_path / "store.db")

    after = run(rows(2), replace(config, replay=before.run_id), store=tmp_path / "store.db")

    assert after.mean == 1.0
    assert after.spec.config["replay"]["run"] == before.run_id


def test_the_recording_of_a_replayed_run_is_the_same_again(tmp_path: Path) -> None:
    async def ask_remote(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        return (await context.client.complete(context.messages)).message.text

    config = EvalConfig(agent=ask_remote, endpoint=REMOTE, score_fn=says_capitals)
    _, path = record_live(tmp_path, rows(2), config)
    first = Recording.open(path)

    again = run(rows(2), replace(config, replay=path), store=tmp_path / "store.db")
    second = Recording.open(record(tmp_path, again))

    assert first.header.sha256 == second.header.sha256


def test_a_function_that_asks_the_model_in_this_process_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_twice(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        draft = await context.client.complete(context.messages)
        # Another conversation, of which the trajectory keeps nothing.
        check = [Message(role="user", content=f"Check: {draft.message.text}")]
        await context.client.complete(check)
        return draft.message.text

    config = EvalConfig(agent=ask_twice, endpoint=REMOTE, score_fn=says_capitals)
    before, path = record_live(tmp_path, rows(2), config)
    refuse_connections(monkeypatch)

    after = run(rows(2), replace(config, replay=path), store=tmp_path / "store.db")

    assert before.mean == after.mean == 1.0
    assert after.replay is not None
    assert after.replay.replayed == 4


def test_a_function_that_asks_through_the_gateway_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(sample: Sample, context: RunContext) -> str:
        async with AsyncOpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            answer = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": sample.id}]
            )
        return answer.choices[0].message.content or ""

    config = EvalConfig(agent=ask, endpoint=REMOTE, score_fn=says_capitals)
    before, path = record_live(tmp_path, rows(3), config)
    refuse_connections(monkeypatch)

    after = run(rows(3), replace(config, replay=path), store=tmp_path / "store.db")

    assert before.mean == after.mean == 1.0
    assert [row.cost_usd for row in after.results()] == [0.0] * 3
    then = [row.latency_s for row in before.results()]
    assert [row.latency_s for row in after.results()] == then


def test_a_rollout_function_and_a_model_agent_object_are_replayed(tmp_path: Path) -> None:
    async def roll_out(client: ModelClient | None, sample: Sample) -> Trajectory:
        assert client is not None
        return await run_agent(client, BasicEnvironment(), [Message(role="user", content="hi")])

    for config in (
        EvalConfig(rollout_fn=roll_out, endpoint=ECHO, score_fn=lambda sample: 1.0),
        EvalConfig(agent=ModelAgent(ECHO, system="Be kind."), endpoint=ECHO, score_fn=right),
    ):
        before = run(rows(1), config, store=tmp_path / "store.db")
        after = run(rows(1), replace(config, replay=before.run_id), store=tmp_path / "store.db")

        assert after.mean == before.mean == 1.0
        assert after.replay is not None
        assert after.replay.replayed == 1


def test_each_repeat_has_its_own_answers(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=scripted("a", "b", "c"), score_fn=right, repeats=3, concurrency=1)
    before = run(rows(1), config, store=tmp_path / "store.db")

    after = run(rows(1), replace(config, replay=before.run_id), store=tmp_path / "store.db")

    assert [each.response for each in before.samples] == ["a", "b", "c"]
    assert [each.response for each in after.samples] == ["a", "b", "c"]


@pytest.mark.parametrize("score_failures", [False, True])
def test_a_sample_with_a_difference_is_inconclusive_and_the_others_go_on(
    tmp_path: Path, score_failures: bool
) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right, score_failures=score_failures)
    before = run(rows(30), config, store=tmp_path / "store.db")
    changed = [{**row, "question": f"Shout {n}"} for n, row in enumerate(rows(30))]
    changed[7] = rows(30)[7]

    after = run(changed, replace(config, replay=before.run_id), store=tmp_path / "store.db")

    assert after.summary.failed == {"replay": 29}
    assert after.summary.judged_results == 1
    first = after.samples[0]
    assert first.failure is not None
    assert first.failure.boundary is Boundary.REPLAY
    assert "in messages[0] (user).content\n--- recorded\n+++ now" in first.failure.message
    assert "-Say 0\n+Shout 0" in first.failure.message


def test_an_agent_that_hides_the_difference_is_inconclusive_too(tmp_path: Path) -> None:
    told = "Say hi"

    async def ask(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        try:
            await context.client.complete([Message(role="user", content=told)])
        except Exception:
            return "HIDDEN"
        return "SHOWN"

    config = EvalConfig(agent=ask, endpoint=ECHO, score_fn=says_capitals)
    before = run(rows(1), config, store=tmp_path / "store.db")
    told = "Say something else"

    after = run(rows(1), replace(config, replay=before.run_id), store=tmp_path / "store.db")

    assert before.mean == 1.0
    assert after.mean is None
    assert after.summary.failed == {"replay": 1}


def test_a_changed_setting_of_the_model_is_a_difference(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right)
    before = run(rows(1), config, store=tmp_path / "store.db")
    warm = ECHO.model_copy(update={"temperature": 0.9})

    after = run(
        rows(1), replace(config, endpoint=warm, replay=before.run_id), store=tmp_path / "store.db"
    )

    assert after.samples[0].failure is not None
    assert " in temperature\n" in after.samples[0].failure.message


def test_the_model_answers_missing_calls_if_it_may(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right)
    before = run(rows(2), config, store=tmp_path / "store.db")
    live = replace(config, replay=before.run_id, replay_missing="live")

    after = run(rows(3), live, store=tmp_path / "store.db")

    assert after.mean == 1.0
    assert after.replay is not None
    assert (after.replay.replayed, after.replay.live) == (2, 1)
    calls = [sample.trajectory.calls[0] for sample in after.samples if sample.trajectory]
    extras = [(call.__pydantic_extra__ or {}).get("replayed") for call in calls]
    assert extras == [True, True, None]


def test_recorded_costs_are_kept_apart_from_new_ones(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"mock:echo": {"input": 1e6, "output": 0}}}', "utf-8")
    config = EvalConfig(endpoint=ECHO, score_fn=right)
    config = replace(config, client=replace(config.client, prices=prices))
    before = run(rows(1), config, store=tmp_path / "store.db")
    limited = replace(config, replay=before.run_id, max_cost_usd=0.5)

    after = run(rows(1), limited, store=tmp_path / "store.db")

    assert before.summary.cost_usd.value == 2.0
    assert after.summary.cost_usd.value == 0.0
    assert after.spec.config["replay"]["cost_usd"] == 2.0
    trajectory = after.samples[0].trajectory
    assert trajectory is not None
    assert trajectory.calls[0].usage is not None
    assert (trajectory.calls[0].usage.__pydantic_extra__ or {})["recorded_cost_usd"] == 2.0


def test_a_replayed_run_resumes_neither_a_live_one_nor_another_recording(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=right)
    live = run(rows(1), config, store=tmp_path / "store.db")
    replayed = replace(config, replay=live.run_id)
    other = run(rows(1), replayed, store=tmp_path / "store.db")

    for wrong, resumed in ((replayed, live.run_id), (config, other.run_id)):
        with pytest.raises(ConfigError, match="replay"):
            run(rows(1), wrong, store=tmp_path / "store.db", resume=resumed)
    # The same recording under another name is the same run.
    recording = record(tmp_path, live)
    again = run(
        rows(1),
        replace(config, replay=recording),
        store=tmp_path / "store.db",
        resume=Resume(other.run_id),
    )
    assert again.run_id == other.run_id


def test_a_command_in_another_folder_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "agent.py"
    # The folder of a command is another one for each sample and run.
    program.write_text(
        "import json, os, sys, urllib.request\n"
        "text = f'in {os.getcwd()}: {sys.stdin.read()}'\n"
        "body = {'model': 'm', 'messages': [{'role': 'user', 'content': text}]}\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "request = urllib.request.Request(url, json.dumps(body).encode(), headers)\n"
        "answer = json.load(urllib.request.urlopen(request))\n"
        "print(answer['choices'][0]['message']['content'])\n",
        "utf-8",
    )
    command = f"cmd:{sys.executable} {program}"
    config = EvalConfig(agent=command, endpoint=REMOTE, score_fn=says_capitals)
    before, path = record_live(tmp_path, rows(1), config)
    refuse_connections(monkeypatch)

    after = run(rows(1), replace(config, replay=path), store=tmp_path / "store.db")

    assert before.mean == after.mean == 1.0
    assert after.summary.failed == {}


def test_a_replay_without_a_model_to_replay_is_refused(tmp_path: Path) -> None:
    config = EvalConfig(agent=lambda sample: "hi", score_fn=right, replay="calls.jsonl")

    with pytest.raises(ConfigError, match="`replay` answers the calls to a model"):
        run(rows(1), config, store=tmp_path / "store.db")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"replay_missing": "never", "replay": "x"}, "neither 'fail' nor 'live'"),
        ({"replay_missing": "live"}, "has no effect without `replay`"),
        ({"replay": 7}, "`replay` cannot be of type `int`"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        EvalConfig(endpoint=ECHO, score_fn=right, **settings)
