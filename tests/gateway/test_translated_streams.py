"""Streams of a model with another API: each part reaches the agent while the next is not written.

The agents use the real clients of OpenAI and Anthropic, which refuse invalid event streams.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from anthropic import APIStatusError as AnthropicStatusError
from anthropic import AsyncAnthropic
from openai import APIError, AsyncOpenAI

from assay.gateway import Gateway, GatewaySession
from assay.providers import connect
from assay.types import Trajectory
from model_apis import (
    UPSTREAM_KEY,
    ModelApi,
    answer_chat,
    answer_messages,
    answer_responses,
    chat_events,
)
from streamed_answers import WRITERS, event, write_chat, write_messages, write_responses

PROVIDERS = ("openai", "openai-responses", "anthropic", "gemini")
DIALECTS = ("openai", "openai-responses", "anthropic")
PAIRS = [(dialect, provider) for dialect in DIALECTS for provider in PROVIDERS]
OTHER_PAIRS = [(dialect, provider) for dialect, provider in PAIRS if dialect != provider]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

_CALL_DELTAS = (
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
)

Pieces = AsyncIterator[tuple[str, str]]
"""What the agent reads: `text`, `reasoning` or the name of a tool, each with its piece."""


async def read_chat(session: GatewaySession, **more: Any) -> Pieces:
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as sdk:
        names: dict[int, str] = {}
        stream: Any = await sdk.chat.completions.create(
            model="x",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
            stream_options={"include_usage": True},
            **more,
        )
        async for chunk in stream:
            if chunk.usage:
                yield "usage", f"{chunk.usage.prompt_tokens}/{chunk.usage.completion_tokens}"
            for choice in chunk.choices:
                if thought := getattr(choice.delta, "reasoning_content", None):
                    yield "reasoning", thought
                if choice.delta.content:
                    yield "text", choice.delta.content
                for call in choice.delta.tool_calls or []:
                    names.setdefault(call.index, call.function.name)
                    yield names[call.index], call.function.arguments or ""
                if choice.finish_reason:
                    yield "finish", choice.finish_reason


async def read_responses(session: GatewaySession, **more: Any) -> Pieces:
    async with (
        AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as sdk,
        sdk.responses.stream(model="x", input="hello", **more) as stream,
    ):
        names: dict[int, str] = {}
        async for part in stream:
            found: Any = part
            if part.type == "response.output_text.delta":
                yield "text", found.delta
            elif part.type == "response.reasoning_summary_text.delta":
                yield "reasoning", found.delta
            elif part.type == "response.output_item.added" and hasattr(found.item, "call_id"):
                names[found.output_index] = found.item.name
                yield found.item.name, ""
            elif part.type in _CALL_DELTAS:
                yield names[found.output_index], found.delta
        last = await stream.get_final_response()
        called = any(item.type == "function_call" for item in last.output)
        assert last.usage is not None
        yield "usage", f"{last.usage.input_tokens}/{last.usage.output_tokens}"
        yield "finish", "tool_calls" if called else "stop"


async def read_messages(session: GatewaySession, **more: Any) -> Pieces:
    async with AsyncAnthropic(base_url=session.root_url, api_key=session.key, max_retries=0) as sdk:
        turns: list[Any] = [{"role": "user", "content": "hello"}]
        async with sdk.messages.stream(model="x", max_tokens=9, messages=turns, **more) as stream:
            names: dict[int, str] = {}
            async for part in stream:
                found: Any = part
                if part.type == "content_block_start" and found.content_block.type == "tool_use":
                    names[found.index] = found.content_block.name
                    yield found.content_block.name, ""
                elif part.type == "content_block_delta" and found.delta.type == "text_delta":
                    yield "text", found.delta.text
                elif part.type == "content_block_delta" and found.delta.type == "thinking_delta":
                    yield "reasoning", found.delta.thinking
                elif part.type == "content_block_delta" and found.delta.type == "input_json_delta":
                    yield names[found.index], found.delta.partial_json
            last = await stream.get_final_message()
        yield "usage", f"{last.usage.input_tokens}/{last.usage.output_tokens}"
        yield "finish", {"end_turn": "stop", "tool_use": "tool_calls"}[str(last.stop_reason)]


READERS: dict[str, Callable[..., Pieces]] = {
    "openai": read_chat,
    "openai-responses": read_responses,
    "anthropic": read_messages,
}


@asynccontextmanager
async def serve(provider: str) -> AsyncIterator[tuple[ModelApi, Gateway, GatewaySession]]:
    async with (
        ModelApi(provider) as api,
        connect(api.endpoint()) as client,
        Gateway(client) as gateway,
    ):
        yield api, gateway, gateway.open_session()


async def send_events(request: web.Request, events: Iterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for each in events:
        await response.write(each)
    return response


def behave(events: Callable[[], Iterator[bytes]]) -> Any:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await send_events(request, events())

    return answer


async def collect(pieces: Pieces) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    async for kind, piece in pieces:
        found.setdefault(kind, []).append(piece)
    return found


@pytest.mark.parametrize(("dialect", "provider"), PAIRS)
def test_text_reaches_the_agent_before_the_model_writes_more(dialect: str, provider: str) -> None:
    async def scenario() -> tuple[dict[str, list[str]], Trajectory]:
        async with serve(provider) as (api, _, session):
            steps: asyncio.Queue[None] = asyncio.Queue()

            async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                for each in WRITERS[provider](["Hm, ", "yes."], ["one ", "two ", "three"], []):
                    await response.write(each)
                    if any(
                        json.dumps(piece).encode() in each for piece in ("Hm, ", "one ", "two ")
                    ):
                        # Nothing more until the agent has read this piece.
                        await steps.get()
                return response

            api.behave(answer)
            found: dict[str, list[str]] = {}
            async with asyncio.timeout(10):
                async for kind, piece in READERS[dialect](session):
                    found.setdefault(kind, []).append(piece)
                    steps.put_nowait(None)
            return found, await session.seal()

    found, trajectory = asyncio.run(scenario())

    assert found["reasoning"] == ["Hm, ", "yes."]
    assert found["text"] == ["one ", "two ", "three"]
    assert found["finish"] == ["stop"]
    assert found["usage"] == ["20/5"]
    (call,) = trajectory.calls
    assert trajectory.messages[-1].text == "one two three"
    assert trajectory.messages[-1].reasoning == "Hm, yes."
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (20, 5)
    assert call.wire is not None
    assert call.wire["first_byte_s"] <= call.latency_s


@pytest.mark.parametrize(("dialect", "provider"), PAIRS)
def test_parallel_calls_arrive_in_pieces(dialect: str, provider: str) -> None:
    calls = [['{"city"', ': "Ulm"}'], [], ['{"city": "Bonn"}']]

    async def scenario() -> tuple[dict[str, list[str]], Trajectory]:
        async with serve(provider) as (api, _, session):
            api.behave(behave(lambda: WRITERS[provider]([], ["Let me see."], calls)))
            return await collect(READERS[dialect](session)), await session.seal()

    found, trajectory = asyncio.run(scenario())

    assert found["text"] == ["Let me see."]
    assert json.loads("".join(found["tool_0"])) == {"city": "Ulm"}
    assert json.loads("".join(found["tool_2"])) == {"city": "Bonn"}
    # Whoever passes a stream on byte by byte adds nothing to a call without arguments.
    assert "".join(found["tool_1"]) == ("" if dialect == provider else "{}")
    if provider != "gemini":
        assert [piece for piece in found["tool_0"] if piece] == calls[0]
    assert found["finish"] == ["tool_calls"]
    made = trajectory.messages[-1].tool_calls
    assert [(call.id, call.name) for call in made] == [(f"c{i}", f"tool_{i}") for i in range(3)]
    assert [call.arguments for call in made] == [{"city": "Ulm"}, {}, {"city": "Bonn"}]


@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic"])
def test_pieces_of_two_calls_in_turn_are_sorted(dialect: str) -> None:
    def events() -> Iterator[bytes]:
        (start, first, part, second, other, *rest) = write_chat(
            [], [], [['{"city": "Ulm"}'], ['{"city": "Bonn"}']]
        )
        cut = part.replace(b'\\"Ulm\\"}', b""), part.replace(b'{\\"city\\": ', b"")
        yield from (start, first, cut[0], second, cut[1], other, *rest)

    async def scenario() -> dict[str, list[str]]:
        async with serve("openai") as (api, _, session):
            api.behave(behave(events))
            return await collect(READERS[dialect](session))

    found = asyncio.run(scenario())

    assert json.loads("".join(found["tool_0"])) == {"city": "Ulm"}
    assert json.loads("".join(found["tool_1"])) == {"city": "Bonn"}


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_call_that_waits_is_written_once(dialect: str) -> None:
    def events() -> Iterator[bytes]:
        calls = [['{"city":', ' "Ulm"}'], ['{"city": "Bonn"}']]
        (start, first, cut, rest, done, second, other, *end) = write_responses([], [], calls)
        yield from (start, first, cut, second, other, rest, done, *end)

    async def scenario() -> dict[str, list[str]]:
        async with serve("openai-responses") as (api, _, session):
            api.behave(behave(events))
            return await collect(READERS[dialect](session))

    found = asyncio.run(scenario())

    assert json.loads("".join(found["tool_0"])) == {"city": "Ulm"}
    assert json.loads("".join(found["tool_1"])) == {"city": "Bonn"}


def test_text_after_a_call_stays_after_it() -> None:
    def events() -> Iterator[bytes]:
        for each in write_messages([], ["later"], [["{}"]]):
            # The call becomes the first block, the text the second.
            text = each.decode()
            index = {'"index": 0': '"index": 1', '"index": 1': '"index": 0'}
            found = next((key for key in index if key in text), None)
            yield (text.replace(found, index[found]) if found else text).encode()

    async def scenario() -> tuple[dict[str, list[str]], Any]:
        async with serve("anthropic") as (api, _, session):
            api.behave(behave(events))
            found = await collect(read_responses(session))
            (call,) = (await session.seal()).calls
            assert call.wire is not None
            return found, call.wire["answer"]

    found, answer = asyncio.run(scenario())

    # The recorded answer is the one that the agent has read, and will send back.
    assert [item["type"] for item in answer["output"]] == ["message", "function_call"]
    assert found["text"] == ["later"]


@pytest.mark.parametrize(("dialect", "provider"), OTHER_PAIRS)
def test_a_stream_that_ends_early_is_an_error_for_the_agent(dialect: str, provider: str) -> None:
    def events() -> Iterator[bytes]:
        for each in WRITERS[provider]([], ["one ", "two"], []):
            if b'"two"' in each:
                return
            yield each

    async def scenario() -> tuple[list[str], Trajectory]:
        async with serve(provider) as (api, _, session):
            api.behave(behave(events))
            read: list[str] = []

            async def follow() -> None:
                async for _, piece in READERS[dialect](session):
                    read.append(piece)

            with pytest.raises(
                (APIError, AnthropicStatusError),
                match="the stream of the model ended without its last event",
            ):
                await follow()
            return read, await session.seal()

    read, trajectory = asyncio.run(scenario())

    assert read == ["one "]
    assert trajectory.messages == []
    assert trajectory.calls[0].error == "the stream of the model ended without its last event"


ERRORS = {
    "openai": event({"error": {"message": "overloaded now", "type": "server_error"}}),
    "openai-responses": event(
        {"type": "error", "code": "server_error", "message": "overloaded now"}, "error"
    ),
    "anthropic": event(
        {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded now"}},
        "error",
    ),
    "gemini": event({"error": {"code": 503, "message": "overloaded now", "status": "UNAVAILABLE"}}),
}


@pytest.mark.parametrize(("dialect", "provider"), OTHER_PAIRS)
def test_an_error_inside_the_stream_reaches_the_agent_as_its_own(
    dialect: str, provider: str
) -> None:
    def events() -> Iterator[bytes]:
        for each in WRITERS[provider]([], ["one ", "two"], []):
            if b'"two"' in each:
                yield ERRORS[provider]
                return
            yield each

    async def scenario() -> tuple[BaseException, Trajectory]:
        async with serve(provider) as (api, _, session):
            api.behave(behave(events))
            with pytest.raises((APIError, AnthropicStatusError)) as caught:
                await collect(READERS[dialect](session))
            return caught.value, await session.seal()

    error, trajectory = asyncio.run(scenario())

    assert "overloaded now" in str(error)
    assert trajectory.messages == []
    assert trajectory.calls[0].error == "overloaded now"


def test_an_error_as_the_first_event_has_a_status_that_clients_retry_after() -> None:
    async def scenario() -> Any:
        async with serve("anthropic") as (api, _, session):
            api.behave(behave(lambda: iter([ERRORS["anthropic"]])))
            with pytest.raises(APIError) as caught:
                await collect(read_chat(session))
            return caught.value

    error = asyncio.run(scenario())

    assert error.status_code == 529


def test_a_key_in_an_error_of_the_stream_does_not_reach_the_agent() -> None:
    problem = {"type": "authentication_error", "message": f"the key {UPSTREAM_KEY} is invalid"}

    async def scenario() -> Any:
        async with serve("anthropic") as (api, _, session):
            api.behave(behave(lambda: iter([event({"type": "error", "error": problem}, "error")])))
            with pytest.raises(APIError) as caught:
                await collect(read_chat(session))
            return caught.value

    error = asyncio.run(scenario())

    assert error.status_code == 401
    assert "is invalid" in error.message
    assert UPSTREAM_KEY not in error.message


@pytest.mark.parametrize(("dialect", "provider"), OTHER_PAIRS)
def test_a_server_that_ignores_streaming_is_answered_from(dialect: str, provider: str) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "HELLO"}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 5}
    answers: dict[str, Callable[[Any], Any]] = {
        "openai": answer_chat,
        "openai-responses": answer_responses,
        "anthropic": answer_messages,
        "gemini": lambda body: {"candidates": [candidate], "usageMetadata": usage},
    }

    async def ignore(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response(answers[provider](body))

    async def scenario() -> dict[str, list[str]]:
        async with serve(provider) as (api, _, session):
            api.behave(ignore)
            return await collect(READERS[dialect](session))

    found = asyncio.run(scenario())

    assert (found["text"], found["finish"]) == (["HELLO"], ["stop"])


def test_free_text_for_a_tool_is_written_as_text() -> None:
    call = ['{"inp', 'ut": "line 1\\nline 2"}']

    async def scenario() -> tuple[dict[str, list[str]], Any]:
        async with serve("openai") as (api, _, session):
            api.behave(behave(lambda: write_chat([], [], [call])))
            tools: Any = [{"type": "custom", "name": "tool_0", "description": "Patch."}]
            found = await collect(read_responses(session, tools=tools))
            (recorded,) = (await session.seal()).calls
            assert recorded.wire is not None
            return found, recorded.wire["answer"]["output"]

    found, (item,) = asyncio.run(scenario())

    assert "".join(found["tool_0"]) == "line 1\nline 2"
    assert (item["type"], item["input"]) == ("custom_tool_call", "line 1\nline 2")


def test_an_azure_deployment_streams_byte_by_byte() -> None:
    async def scenario() -> tuple[dict[str, list[str]], list[dict[str, Any]], list[str]]:
        paths: list[str] = []

        async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            paths.append(request.path_qs)
            # Azure's first chunk has the results of its filters, and no choice.
            results = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
            return await send_events(
                request, iter([event(results), *chat_events({**answer_chat(body), "_options": {}})])
            )

        async with ModelApi() as api:
            api.provider = "azure"
            endpoint = api.endpoint(api_base=api.url, api_version="2024-10-21")
            async with connect(endpoint) as client, Gateway(client) as gateway:
                session = gateway.open_session()
                api.behave(answer)
                tools: Any = [{"type": "function", "function": {"name": "t", "parameters": SCHEMA}}]
                found = await collect(
                    read_chat(session, tools=tools, tool_choice="required", temperature=0.5)
                )
                return found, api.asked, paths

    found, (asked,), paths = asyncio.run(scenario())

    assert paths == ["/openai/deployments/upstream-model/chat/completions?api-version=2024-10-21"]
    assert asked["tool_choice"] == "required"
    assert asked["temperature"] == 0.5
    assert json.loads("".join(found["t"])) == {"city": "Ulm"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_free_text_for_a_tool_of_chat_completions(provider: str, stream: bool) -> None:
    custom = {"name": "tool_0", "input": "line 1\nline 2"}
    own = {"id": "c0", "type": "custom", "custom": custom}

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if provider == "anthropic":
            given = {"input": "line 1\nline 2"}
            used = {"type": "tool_use", "id": "c0", "name": "tool_0", "input": given}
            if stream:
                return await send_events(request, write_messages([], [], [[json.dumps(given)]]))
            whole: Any = {"role": "assistant", "content": [used], "stop_reason": "tool_use"}
            return web.json_response(whole)
        if stream:
            pieces: list[Any] = [{**own, "custom": {**custom, "input": "line 1"}}]
            pieces.append({"custom": {"input": "\nline 2"}})
            deltas = [{"tool_calls": [{"index": 0, **piece}]} for piece in pieces]
            choices = [{"index": 0, "delta": delta} for delta in deltas]
            last = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
            return await send_events(
                request, (event({"id": "1", "choices": [each]}) for each in (*choices, last))
            )
        message = {"role": "assistant", "content": None, "tool_calls": [own]}
        return web.json_response({"choices": [{"message": message, "finish_reason": "tool_calls"}]})

    async def scenario() -> tuple[Any, Trajectory]:
        async with (
            serve(provider) as (api, _, session),
            AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0) as sdk,
        ):
            api.behave(answer)
            made: Any = await sdk.chat.completions.create(
                model="x",
                messages=[{"role": "user", "content": "patch it"}],
                tools=[{"type": "custom", "custom": {"name": "tool_0"}}],
                stream=stream,
            )
            if not stream:
                return made.choices[0].message.tool_calls[0].to_dict(), await session.seal()
            texts = [
                call.to_dict()["custom"]["input"]
                async for chunk in made
                for choice in chunk.choices
                for call in choice.delta.tool_calls or []
            ]
            return {**own, "custom": {**custom, "input": "".join(texts)}}, await session.seal()

    called, trajectory = asyncio.run(scenario())

    assert called == own
    (call,) = trajectory.calls
    assert call.error is None
    assert call.wire is not None
    (recorded,) = call.wire["answer"]["choices"][0]["message"]["tool_calls"]
    assert recorded == own


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_without_an_id_returns_to_the_model_with_its_signature(stream: bool) -> None:
    called = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "SIGNED"}
    bodies = [
        {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
        for parts in ([called, called], [{"text": "Done."}])
    ]

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        whole = bodies.pop(0)
        assert request.path.endswith(":streamGenerateContent" if stream else ":generateContent")
        return (
            await send_events(request, iter([event(whole)])) if stream else web.json_response(whole)
        )

    async def scenario() -> tuple[list[Any], Trajectory]:
        async with (
            serve("gemini") as (api, _, session),
            AsyncAnthropic(base_url=session.root_url, api_key=session.key, max_retries=0) as sdk,
        ):
            api.behave(answer, answer)
            turns: list[Any] = [{"role": "user", "content": "hello"}]
            for _ in range(2):
                fields: Any = {"model": "x", "max_tokens": 9, "messages": turns}
                fields["tools"] = [{"name": "look", "input_schema": SCHEMA}]
                if stream:
                    async with sdk.messages.stream(**fields) as events:
                        made: Any = await events.get_final_message()
                else:
                    made = await sdk.messages.create(**fields)
                ids = [block.id for block in made.content if block.type == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": each} for each in ids]
                turns += [
                    {"role": "assistant", "content": made.content},
                    {"role": "user", "content": results},
                ]
            return api.asked[1]["contents"], await session.seal()

    (_, model, results), trajectory = asyncio.run(scenario())

    assert [part["thoughtSignature"] for part in model["parts"]] == ["SIGNED"] * 2
    sent = [part["functionCall"]["id"] for part in model["parts"]]
    assert len(set(sent)) == 2
    assert [part["functionResponse"]["id"] for part in results["parts"]] == sent
    assert [call.id for call in trajectory.messages[1].tool_calls] == sent
    assert trajectory.calls[1].parent == 0
