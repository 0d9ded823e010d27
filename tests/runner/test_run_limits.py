"""`RunLimits`: which calls and samples of a run are refused, and what a resume executes."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from assay.agents import RunContext
from assay.errors import ConfigError, RunStopped
from assay.providers import ClientSettings
from assay.runner import EvalConfig, RunLimits, Shard, evaluate, run_shard
from assay.store import Store
from assay.types import ModelCall, Sample, Trajectory, Usage
from model_apis import ModelApi

ROWS = [{"id": f"s{n}", "question": f"question {n}"} for n in range(6)]
TURNS = 2  # each sample asks this often: 20 tokens in and 5 out, for 25 dollars
PRICES = {"models": {"openai:upstream-model": {"input": 1e6, "output": 1e6}}}
PROGRAM = """
import json, os, sys, time, urllib.request
messages = [{"role": "user", "content": sys.stdin.read()}]
for turn in range(2):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": messages}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages += [answer, {"role": "user", "content": f"again {turn}"}]
print(answer["content"])
"""
LIMITS = [
    (RunLimits(max_turns=5), 5, "run_limits.max_turns=5: its agents asked for 5 turns"),
    (RunLimits(max_tokens=110), 5, "run_limits.max_tokens=110: its model calls took 125 tokens"),
    (RunLimits(max_cost_usd=110), 5, "run_limits.max_cost_usd=110: its model calls cost $125.0000"),
]
IDS = ["turns", "tokens", "cost"]


async def ask_in_process(sample: Sample, context: RunContext) -> str:
    assert context.client is not None
    messages = list(context.messages)
    for _ in range(TURNS):
        messages.append((await context.client.complete(messages)).message)
    return messages[-1].text


async def ask_and_ignore_errors(sample: Sample, context: RunContext) -> str:
    try:
        return await ask_in_process(sample, context)
    except RunStopped:
        return "I do not know"


def build_config(api: ModelApi, folder: Path, agent: Any, **settings: Any) -> EvalConfig:
    (folder / "prices.json").write_text(json.dumps(PRICES))
    (folder / "agent.py").write_text(PROGRAM)
    if agent == "command":
        agent = f"cmd:{sys.executable} {folder / 'agent.py'}"
    given = {"concurrency": 1, "client": ClientSettings(prices=folder / "prices.json"), **settings}
    return EvalConfig(agent=agent, endpoint=api.endpoint(), score_fn=lambda sample: 1.0, **given)


def count_recorded(folder: Path) -> tuple[int, int]:
    """Return the number of results and of failed attempts."""
    with Store.open(folder / "store.db", create=False) as store:
        totals = store.run().totals
        return totals.recorded, totals.attempts


@pytest.mark.parametrize(("limits", "most", "reason"), LIMITS, ids=IDS)
@pytest.mark.parametrize(
    "agent", ["command", ask_in_process, ask_and_ignore_errors], ids=["gateway", "client", "deaf"]
)
def test_calls_after_a_limit_are_refused_and_a_resume_completes(
    agent: Any, limits: RunLimits, most: int, reason: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with ModelApi() as api:
            config = build_config(api, tmp_path, agent, run_limits=limits)
            with pytest.raises(RunStopped) as stopped:
                await evaluate(ROWS, config, store=tmp_path / "store.db")

            assert reason in stopped.value.message
            assert "resume the run with a higher limit" in str(stopped.value.hint)
            assert len(api.asked) == most
            # The third sample was cut after its first answer, which is paid for.
            assert count_recorded(tmp_path) == (2, 1)

            rest = replace(config, run_limits=RunLimits(max_turns=100))
            resumed = await evaluate(
                ROWS, rest, store=tmp_path / "store.db", resume=stopped.value.run_id
            )
            assert len(resumed.samples) == len(ROWS)
            assert resumed.mean == 1.0
            assert len(api.asked) == most + 4 * TURNS

    asyncio.run(scenario())


@pytest.mark.parametrize("agent", ["command", ask_in_process], ids=["gateway", "client"])
def test_samples_in_flight_share_the_limit(agent: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ModelApi() as api:
            limits = RunLimits(max_turns=7)
            config = build_config(api, tmp_path, agent, run_limits=limits, concurrency=6)
            with pytest.raises(RunStopped, match="max_turns=7"):
                await evaluate(ROWS, config, store=tmp_path / "store.db")
            assert len(api.asked) == 7
            results, cut = count_recorded(tmp_path)
            assert results + cut <= len(ROWS)
            assert 2 * results + cut == 7

            rest = replace(config, run_limits=None)
            report = await evaluate(ROWS, rest, store=tmp_path / "store.db", resume="latest")
            assert len(report.samples) == len(ROWS)

    asyncio.run(scenario())


def test_a_model_without_an_agent_is_limited_and_uncalled_samples_are_not_recorded(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with ModelApi() as api:
            limits = RunLimits(max_turns=3)
            config = build_config(api, tmp_path, None, run_limits=limits, concurrency=6)
            with pytest.raises(RunStopped, match="max_turns=3"):
                await evaluate(ROWS, config, store=tmp_path / "store.db")
            assert len(api.asked) == 3

    asyncio.run(scenario())
    assert count_recorded(tmp_path) == (3, 0)


def test_the_time_of_a_run_ends_agents_that_make_no_call(tmp_path: Path) -> None:
    async def idle(sample: Sample, context: RunContext) -> str:
        if sample.id != "s0":
            await asyncio.sleep(60)
        return "done"

    async def scenario() -> None:
        async with ModelApi() as api:
            limits = RunLimits(max_seconds=0.5)
            config = build_config(api, tmp_path, idle, run_limits=limits, concurrency=2)
            with pytest.raises(RunStopped, match=r"run_limits.max_seconds=0.5: the time is over"):
                await asyncio.wait_for(evaluate(ROWS, config, store=tmp_path / "store.db"), 20)

    asyncio.run(scenario())
    assert count_recorded(tmp_path) == (1, 0)


def test_a_client_does_not_retry_a_call_that_the_run_refuses(tmp_path: Path) -> None:
    errors: list[BadRequestError] = []

    async def ask(sample: Sample, context: RunContext) -> str:
        client = AsyncOpenAI(base_url=context.base_url, api_key=context.api_key, max_retries=5)
        messages: Any = [{"role": "user", "content": "hello"}]
        async with client:
            for _ in range(TURNS):
                try:
                    await client.chat.completions.create(model="m", messages=messages)
                except BadRequestError as error:
                    errors.append(error)
        return "done"

    async def scenario() -> None:
        async with ModelApi() as api:
            config = build_config(api, tmp_path, ask, run_limits=RunLimits(max_turns=1))
            with pytest.raises(RunStopped, match="max_turns=1"):
                await evaluate(ROWS, config, store=tmp_path / "store.db")
            assert len(api.asked) == 1

    asyncio.run(scenario())
    (error,) = errors
    assert error.code == "limit_reached"
    assert "the limit run_limits.max_turns of this run is reached" in error.message
    assert error.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RunLimits(max_turns=3), "max_turns=3"),
        (RunLimits(max_tokens=30), "took 33 tokens"),
        (RunLimits(max_cost_usd=1.5), r"cost \$1.5000"),
    ],
    ids=IDS,
)
def test_an_agent_that_reports_its_calls_is_limited_between_samples(
    limits: RunLimits, reason: str, tmp_path: Path
) -> None:
    usage = Usage(input_tokens=10, output_tokens=1, cost_usd=0.5)

    def answer(sample: Sample) -> Trajectory:
        return Trajectory(messages=sample.messages, calls=[ModelCall(model="own", usage=usage)])

    config = EvalConfig(agent=answer, score_fn=lambda sample: 1.0, run_limits=limits, concurrency=1)
    with pytest.raises(RunStopped, match=reason):
        asyncio.run(evaluate(ROWS, config, store=tmp_path / "store.db"))
    assert count_recorded(tmp_path) == (3, 0)


def test_a_limit_of_unknown_tokens_cannot_be_enforced(tmp_path: Path) -> None:
    config = EvalConfig(
        agent=lambda sample: "Paris",
        score_fn=lambda sample: 1.0,
        run_limits=RunLimits(max_tokens=1000),
        concurrency=1,
    )
    with pytest.raises(RunStopped, match="the usage of a model call is unknown") as stopped:
        asyncio.run(evaluate(ROWS, config, store=tmp_path / "store.db"))
    assert "remove the limit" in str(stopped.value.hint)


def test_a_limit_that_the_run_does_not_reach_changes_nothing(tmp_path: Path) -> None:
    limits = RunLimits(max_turns=6, max_seconds=600)
    config = EvalConfig(endpoint="mock:echo", score_fn=lambda sample: 1.0, run_limits=limits)

    report = asyncio.run(evaluate(ROWS, config, store=tmp_path / "store.db"))

    assert len(report.samples) == len(ROWS)
    assert config.fingerprint() == replace(config, run_limits=None).fingerprint()


def test_limits_of_several_processes_are_refused(tmp_path: Path) -> None:
    limits = RunLimits(max_turns=6)
    config = EvalConfig(endpoint="mock:echo", score_fn=lambda sample: 1.0, run_limits=limits)

    with pytest.raises(ConfigError, match="several processes"):
        asyncio.run(run_shard(ROWS, config, Shard("r", 1, 2), store=tmp_path / "store.db"))
    with pytest.raises(ConfigError, match="several processes"):
        replace(config, engine="ray")


@pytest.mark.parametrize("value", [0, -1, True, "5", float("inf")])
def test_a_limit_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"RunLimits.*max_turns="):
        RunLimits(max_turns=value)
    with pytest.raises(ConfigError, match="`run_limits` cannot be of type `int`"):
        EvalConfig(endpoint="mock:echo", score_fn="exact_answer", run_limits=5)  # type: ignore[arg-type]
