"""Models as agents: the manifest's words and tools, and times without waits between attempts."""

import asyncio
import time
from typing import Any

from assay.agents.certified_agent import AgentAnswer
from assay.agents.endpoint_agent import (
    EndpointAgent,
    ToolCode,
    _retry_waits,
    _sleep_and_record,
    build_system_prompt,
)
from assay.providers import ClientSettings
from assay.types import Endpoint, Sample
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


def answered(model: str, params: dict[str, Any] | None = None, **fields: Any) -> AgentAnswer:
    async def run() -> AgentAnswer:
        endpoint = Endpoint(provider="mock", model=model, extra_params=params or {})
        given = {"definition": HELPER, "settings": ClientSettings(concurrency=1), **fields}
        made = EndpointAgent(endpoint, **given)
        try:
            return await made.answer(Sample(prompt="Say 4"), seed=1)
        finally:
            await made.close()

    return asyncio.run(run())


def test_the_manifest_says_who_the_agent_is() -> None:
    text = build_system_prompt(HELPER).text

    for words in ("Helper", "One who helps.", "Say what is asked for.", "It was made to help."):
        assert words in text


def test_its_own_agent_is_asked_with_its_words_and_one_behind_an_address_is_not() -> None:
    own = answered("echo").trajectory
    other = answered("echo", definition=None).trajectory

    assert [message.role for message in own.messages] == ["system", "user", "assistant"]
    assert [message.role for message in other.messages] == ["user", "assistant"]
    assert own.messages[-1].text == "Say 4"


def test_inline_tools_are_told_as_the_manifest_has_them_and_run_as_functions() -> None:
    tools = ToolCode([DOUBLE], [double], "digest")
    call = {"name": "double", "arguments": {"number": 21}}
    replies = [{"tool_calls": [call]}, "It is 42."]

    trajectory = answered("script", {"replies": replies}, tools=tools).trajectory

    assert tools.environment().tools[0].parameters["properties"] == {"number": {"type": "integer"}}
    assert [message.text for message in trajectory.messages[-2:]] == ["42", "It is 42."]


def test_time_is_the_agents_own() -> None:
    slow = answered("fixed", {"text": "4", "latency_s": 0.05})

    assert slow.seconds >= 0.05


def test_waits_between_attempts_are_counted_apart() -> None:
    async def run() -> list[float]:
        waited: list[float] = []
        _retry_waits.set(waited)
        await _sleep_and_record(0.001)
        return waited

    (seconds,) = asyncio.run(run())

    assert seconds >= 0.001


def test_a_server_that_asks_for_patience_does_not_make_its_agent_slow() -> None:
    async def run() -> tuple[float, AgentAnswer]:
        busy = answers({"error": {"message": "slow down"}}, 429, Retry_After="0.5")
        async with ModelServer(busy, OK) as server:
            made = EndpointAgent(
                server.endpoint(), definition=None, settings=ClientSettings(concurrency=1)
            )
            started = time.perf_counter()
            found = await made.answer(Sample(prompt="Hi"), seed=None)
            seconds = time.perf_counter() - started
            await made.close()
            return seconds, found

    seconds, found = asyncio.run(run())

    assert found.trajectory.calls[0].attempts == 2
    assert seconds - found.seconds >= 0.4


def test_agents_that_would_answer_differently_have_other_identities() -> None:
    settings = ClientSettings()
    echo = Endpoint(provider="mock", model="echo")
    own = EndpointAgent(echo, definition=HELPER, settings=settings)
    bare = EndpointAgent(echo, definition=None, settings=settings)
    said = EndpointAgent(
        Endpoint(provider="mock", model="fixed", extra_params={"text": "a"}),
        definition=HELPER,
        settings=settings,
    )

    assert len({own.identity, bare.identity, said.identity}) == 3
    assert (own.name, bare.name) == ("own model mock:echo", "mock:echo")
