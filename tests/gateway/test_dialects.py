"""Agents of each API in front of models of each API: text, tools, streams and errors.

The agents use the real clients of OpenAI and Anthropic.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import pytest
from aiohttp import ClientSession, web
from openai import APIStatusError, AsyncOpenAI

from assay.gateway import Gateway, GatewaySession
from assay.providers import connect
from assay.types import Trajectory
from gateway_servers import post, serve
from model_apis import ModelApi, post_messages

PROVIDERS = ("openai", "openai-responses", "anthropic")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TEMPERATURE = "7 degrees"

Agent = Callable[[GatewaySession, str, bool], Awaitable[str]]
"""Asks with the weather tool if the question is about weather, and returns the last answer."""


async def chat_agent(session: GatewaySession, question: str, stream: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    function = {"name": "weather", "description": "Look up.", "parameters": SCHEMA}
    tools: Any = [{"type": "function", "function": function}] if "weather" in question else None
    more: Any = {"tools": tools} if tools else {}
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as sdk:
        while True:
            if stream:
                async with sdk.chat.completions.stream(
                    model="gpt", messages=messages, **more
                ) as events:
                    answer: Any = await events.get_final_completion()
            else:
                answer = await sdk.chat.completions.create(model="gpt", messages=messages, **more)
            message = answer.choices[0].message
            if not message.tool_calls:
                assert answer.choices[0].finish_reason == "stop"
                return message.content or ""
            assert answer.choices[0].finish_reason == "tool_calls"
            (call,) = message.tool_calls
            assert json.loads(call.function.arguments) == {"city": "Ulm"}
            function = {"name": call.function.name, "arguments": call.function.arguments}
            kept = {"id": call.id, "type": "function", "function": function}
            messages += [
                {"role": "assistant", "content": message.content, "tool_calls": [kept]},
                {"role": "tool", "tool_call_id": call.id, "content": TEMPERATURE},
            ]


async def responses_agent(session: GatewaySession, question: str, stream: bool) -> str:
    items: list[Any] = [{"role": "user", "content": question}]
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    more: Any = {"tools": [tool]} if "weather" in question else {}
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as sdk:
        while True:
            if stream:
                async with sdk.responses.stream(
                    model="gpt", input=items, store=False, **more
                ) as events:
                    answer: Any = await events.get_final_response()
            else:
                answer = await sdk.responses.create(model="gpt", input=items, store=False, **more)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return str(answer.output_text)
            (call,) = calls
            assert json.loads(call.arguments) == {"city": "Ulm"}
            kept = {"type": "function_call", "call_id": call.call_id, "name": call.name}
            items += [
                {**kept, "arguments": call.arguments},
                {"type": "function_call_output", "call_id": call.call_id, "output": TEMPERATURE},
            ]


async def messages_agent(session: GatewaySession, question: str, stream: bool) -> str:
    turns: list[Any] = [{"role": "user", "content": question}]
    tools = [{"name": "weather", "description": "Look up.", "input_schema": SCHEMA}]
    body: dict[str, Any] = {"model": "claude", "max_tokens": 100, "stream": stream}
    if "weather" in question:
        body["tools"] = tools
    while True:
        answer = await post_messages(session, {**body, "messages": turns})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            assert answer["stop_reason"] == "end_turn"
            return "".join(block.get("text", "") for block in answer["content"])
        assert answer["stop_reason"] == "tool_use"
        (call,) = calls
        assert call["input"] == {"city": "Ulm"}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": TEMPERATURE}
        turns += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [result]},
        ]


AGENTS: dict[str, Agent] = {
    "openai": chat_agent,
    "openai-responses": responses_agent,
    "anthropic": messages_agent,
}


async def ask(
    agent: Agent, api: ModelApi, question: str, *, stream: bool
) -> tuple[str, Trajectory]:
    async with connect(api.endpoint()) as client, Gateway(client) as gateway:
        session = gateway.open_session()
        answer = await agent(session, question, stream)
        return answer, await session.seal()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dialect", PROVIDERS)
def test_an_agent_of_each_api_gets_the_text_of_each_model(
    dialect: str, provider: str, stream: bool
) -> None:
    async def scenario() -> tuple[str, Trajectory, dict[str, Any]]:
        async with ModelApi(provider) as api:
            answer, trajectory = await ask(AGENTS[dialect], api, "hello", stream=stream)
            return answer, trajectory, api.asked[0]

    answer, trajectory, asked = asyncio.run(scenario())

    assert answer == "HELLO"
    assert [message.text for message in trajectory.messages] == ["hello", "HELLO"]
    assert asked["model"] == "upstream-model"
    (call,) = trajectory.calls
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (20, 5)
    assert trajectory == Trajectory.from_json(trajectory.to_json())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dialect", PROVIDERS)
def test_an_agent_of_each_api_uses_tools_with_each_model(
    dialect: str, provider: str, stream: bool
) -> None:
    async def scenario() -> tuple[str, Trajectory, list[dict[str, Any]]]:
        async with ModelApi(provider) as api:
            question = "weather in Ulm?"
            answer, trajectory = await ask(AGENTS[dialect], api, question, stream=stream)
            return answer, trajectory, api.asked

    answer, trajectory, asked = asyncio.run(scenario())

    assert answer == f"It is {TEMPERATURE}."
    roles = [message.role for message in trajectory.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert trajectory.messages[1].tool_calls[0].arguments == {"city": "Ulm"}
    assert trajectory.messages[2].text == TEMPERATURE
    assert len(trajectory.calls) == len(asked) == 2
    assert trajectory.calls[0].finish_reason in ("tool_calls", "tool_use")


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("dialect", PROVIDERS)
def test_reasoning_returns_to_the_model_although_the_agents_api_has_no_place_for_it(
    dialect: str, provider: str
) -> None:
    if dialect == provider:
        return  # passed on as the agent sends it

    async def scenario() -> dict[str, Any]:
        async with ModelApi(provider) as api:
            await ask(AGENTS[dialect], api, "weather in Ulm?", stream=True)
            return api.asked[1]

    sent = json.dumps(asyncio.run(scenario()))

    assert ("ENCRYPTED" if provider == "openai-responses" else "SIGNED") in sent


PIXEL = "iVBORw0KGgo="


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dialect", PROVIDERS)
def test_an_image_reaches_each_model(dialect: str, provider: str) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    bodies: dict[str, tuple[str, str, Any]] = {
        "openai": (
            "/chat/completions",
            "messages",
            {"type": "image_url", "image_url": {"url": url}},
        ),
        "openai-responses": ("/responses", "input", {"type": "input_image", "image_url": url}),
        "anthropic": ("/messages", "messages", {"type": "image", "source": source}),
    }

    async def scenario() -> Any:
        async with (
            ModelApi(provider) as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            ClientSession() as http,
        ):
            session = gateway.open_session()
            path, field, part = bodies[dialect]
            body = {"model": "m", field: [{"role": "user", "content": [part]}]}
            headers = {"x-api-key": session.key}
            async with http.post(session.base_url + path, json=body, headers=headers) as response:
                assert response.status == 200, await response.text()
            return api.asked[0][bodies[provider][1]][-1]["content"]

    (part,) = asyncio.run(scenario())

    assert part == bodies[provider][2]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([{"type": "document", "source": {"type": "text", "data": "x"}}], "messages[0].content[0]"),
        (5, "messages[0].content: the value is of type int"),
    ],
)
def test_a_part_that_cannot_be_translated_is_named(content: Any, problem: str) -> None:
    async def scenario() -> str:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            ClientSession() as http,
        ):
            session = gateway.open_session()
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            url, headers = f"{session.base_url}/messages", {"x-api-key": session.key}
            async with http.post(url, json=body, headers=headers) as response:
                assert response.status == 400
                return str((await response.json())["error"]["message"])

    message = asyncio.run(scenario())

    assert problem in message
    assert "left out" not in message


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_of_the_model_reaches_openais_client(provider: str, stream: bool) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        error = {"type": "rate_limit_error", "message": "too many", "code": "slow_down"}
        return web.json_response({"error": error}, status=429, headers={"Retry-After": "7"})

    async def scenario(agent: Agent) -> tuple[APIStatusError, Trajectory]:
        async with ModelApi(provider) as api, connect(api.endpoint()) as client:
            api.behave(refuse)
            async with Gateway(client) as gateway:
                session = gateway.open_session()
                with pytest.raises(APIStatusError) as caught:
                    await agent(session, "hello", stream)
                return caught.value, await session.seal()

    for agent in (chat_agent, responses_agent):
        error, trajectory = asyncio.run(scenario(agent))

        assert error.status_code == 429
        assert "too many" in error.message
        assert error.response.headers["Retry-After"] == "7"
        assert trajectory.messages == []
        assert "too many" in (trajectory.calls[0].error or "")
        assert trajectory.calls[0].completion_ids is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_anthropics_client_uses_tools_and_reads_errors(provider: str, stream: bool) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        error = {"type": "overloaded_error", "message": "too busy"}
        return web.json_response({"error": error}, status=529, headers={"Retry-After": "3"})

    async def scenario() -> tuple[str, int, str]:
        async with (
            ModelApi(provider) as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
        ):
            session = gateway.open_session()
            async with anthropic.AsyncAnthropic(
                base_url=session.root_url, api_key=session.key, max_retries=0
            ) as sdk:
                tools = [{"name": "weather", "input_schema": SCHEMA}]
                turns: list[Any] = [{"role": "user", "content": "weather?"}]
                fields: Any = {"model": "claude", "max_tokens": 9, "tools": tools}
                for _ in range(2):
                    if stream:
                        async with sdk.messages.stream(messages=turns, **fields) as events:
                            answer: Any = await events.get_final_message()
                    else:
                        answer = await sdk.messages.create(messages=turns, **fields)
                    block = answer.content[-1]
                    if block.type == "tool_use":
                        result = {"type": "tool_result", "tool_use_id": block.id}
                        turns += [
                            {"role": "assistant", "content": answer.content},
                            {"role": "user", "content": [{**result, "content": TEMPERATURE}]},
                        ]
                assert answer.usage.output_tokens == 5
                api.behave(refuse)
                with pytest.raises(anthropic.APIStatusError) as caught:
                    await sdk.messages.create(messages=turns, stream=stream, **fields)
                return block.text, caught.value.status_code, str(caught.value)

    text, status, message = asyncio.run(scenario())

    assert (text, status) == (f"It is {TEMPERATURE}.", 529)
    assert "too busy" in message


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_losses_of_reading_and_of_writing_a_request_are_both_counted(
    provider: str, stream: bool
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "SIGNED"}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "ho"}]},
        {"role": "user", "content": "hi"},
    ]

    async def scenario() -> Any:
        async with serve(ModelApi(provider)) as (_, _, session):
            body = {"messages": messages, "metadata": {"user_id": "me"}, "stream": stream}
            await post(f"{session.base_url}/messages", body, key=session.key)
            return (await session.seal()).calls[0]

    lost = asyncio.run(scenario()).lost

    assert lost["`metadata` has no equivalent; left out"] == 1
    assert any("reasoning" in kind for kind in lost)


def test_an_image_that_the_model_has_no_place_for_is_refused() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [IMAGE]}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [result]},
    ]

    async def scenario() -> tuple[int, Any, int]:
        async with serve(ModelApi("gemini")) as (api, _, session):
            url = f"{session.base_url}/messages"
            status, _, answer = await post(url, {"messages": messages}, key=session.key)
            return status, json.loads(answer), len(api.asked)

    status, answer, asked = asyncio.run(scenario())

    assert (status, asked) == (400, 0)
    assert "`messages[2].content[0]` cannot be translated" in answer["error"]["message"]
