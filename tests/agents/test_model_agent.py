"""Models as agents: the manifest's words and tools, and times without waits between attempts."""

import asyncio
import time
from typing import Any

from assay.agents import RunContext
from assay.agents.model_agent import ModelAgent, ToolCode, build_system_prompt
from assay.providers import ClientSettings
from assay.types import Endpoint, Sample, Trajectory
from assay.types.manifest import AgentDefinition, InlineTool
from certifying import agent, profile
from model_server import OK, ModelServer, answers

HELPER = AgentDefinition.model_validate(agent(profile(), backstory="It was made to help."))
DOUBLE = InlineTool.model_validate(
    {
        "name": "double",
        "description": "Twice the number.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
    }
)


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


ASKED = Sample(prompt="Say 4")


def answer(model: str, params: dict[str, Any] | None = None, **fields: Any) -> Trajectory:
    async def run() -> Trajectory:
        endpoint = Endpoint(provider="mock", model=model, extra_params=params or {})
        made = ModelAgent(endpoint, **fields)
        try:
            return await made.run(ASKED, RunContext(messages=ASKED.messages, seed=1))
        finally:
            await made.close()

    return asyncio.run(run())


def test_the_manifest_says_who_the_agent_is() -> None:
    text = build_system_prompt(HELPER)

    for words in ("Helper", "One who helps.", "Say what is asked for.", "It was made to help."):
        assert words in text


def test_a_system_prompt_comes_before_the_question() -> None:
    own = answer("echo", system=build_system_prompt(HELPER))
    other = answer("echo")

    assert [message.role for message in own.messages] == ["system", "user", "assistant"]
    assert [message.role for message in other.messages] == ["user", "assistant"]
    assert own.messages[-1].text == "Say 4"


def test_inline_tools_are_described_by_the_manifest_and_run_as_functions() -> None:
    tools = ToolCode([DOUBLE], [double], "digest")
    call = {"name": "double", "arguments": {"number": 21}}
    replies = [{"tool_calls": [call]}, "It is 42."]

    trajectory = answer("script", {"replies": replies}, environment=tools)

    assert tools(ASKED).tools[0].parameters["properties"] == {"number": {"type": "integer"}}
    assert [message.text for message in trajectory.messages[-2:]] == ["42", "It is 42."]


def test_waits_between_attempts_are_recorded_apart_from_the_latency() -> None:
    async def run() -> tuple[float, Trajectory]:
        busy = answers({"error": {"message": "slow down"}}, 429, Retry_After="0.5")
        async with ModelServer(busy, OK) as server:
            made = ModelAgent(server.endpoint(), settings=ClientSettings(concurrency=1))
            started = time.perf_counter()
            found = await made.run(ASKED, RunContext(messages=ASKED.messages))
            seconds = time.perf_counter() - started
            await made.close()
            return seconds, found

    seconds, found = asyncio.run(run())

    (call,) = found.calls
    assert call.attempts == 2
    assert call.retry_wait_s is not None
    assert 0.4 <= call.retry_wait_s <= seconds


def test_an_agent_can_be_run_again_after_it_was_closed() -> None:
    async def run() -> list[str]:
        made, texts = ModelAgent("mock:echo"), []
        for _ in range(2):
            found = await made.run(ASKED, RunContext(messages=ASKED.messages))
            texts.append(found.messages[-1].text)
            await made.close()
        return texts

    assert asyncio.run(run()) == ["Say 4", "Say 4"]


def test_agents_that_may_answer_differently_have_other_identities() -> None:
    fixed = Endpoint(provider="mock", model="fixed", extra_params={"text": "a"})
    agents = [
        ModelAgent("mock:echo"),
        ModelAgent("mock:echo", system="Be brief."),
        ModelAgent(fixed),
        ModelAgent("mock:echo", environment=ToolCode([DOUBLE], [double], "digest")),
        ModelAgent("mock:echo", environment=ToolCode([DOUBLE], [double], "other")),
    ]

    assert len({agent.identity for agent in agents}) == len(agents)
    assert agents[0].name == "mock:echo"
