"""Faults of models, agents and strangers: how they reach the agent, and what is recorded."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from openai import APIError, APIStatusError, AsyncOpenAI

from assay.formats import EventReader
from assay.gateway import (
    Gateway,
    GatewaySettings,
)
from assay.providers import connect
from assay.types import Trajectory
from gateway_servers import HELLO, open_client, post, serve
from model_apis import UPSTREAM_KEY, ModelApi

TOOL_USE = {"type": "tool_use", "input": 5}
JSON_DELTA = {"type": "input_json_delta", "partial_json": 5}
MALFORMED: dict[str, list[dict[str, Any]]] = {
    "openai": [{"choices": [{"delta": {"tool_calls": 7}, "finish_reason": "stop"}]}],
    "openai-responses": [{"type": "response.completed", "response": {"output": [5]}}],
    "anthropic": [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": TOOL_USE},
        {"type": "content_block_delta", "index": 0, "delta": JSON_DELTA},
    ],
}


@pytest.mark.parametrize("provider", MALFORMED)
def test_events_of_the_wrong_shape_are_a_fault_of_the_model(provider: str) -> None:
    async def send_malformed(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in MALFORMED[provider]:
            await response.write(b"data: %s\n\n" % json.dumps(event).encode())
        return response

    async def scenario() -> tuple[str | None, Trajectory]:
        async with serve(ModelApi(provider)) as (api, _, session):
            api.behave(send_malformed)
            path = {"anthropic": "messages", "openai-responses": "responses"}.get(
                provider, "chat/completions"
            )
            body = {"model": "x", "messages": HELLO, "input": HELLO, "stream": True}
            with pytest.raises(ClientPayloadError):
                await post(f"{session.base_url}/{path}", body, key=session.key)
            return session.fault, await session.seal()

    fault, trajectory = asyncio.run(scenario())

    assert fault is None
    assert trajectory.calls[0].error is not None
    assert trajectory.messages == []


def test_a_whole_answer_of_the_wrong_shape_is_a_bad_gateway() -> None:
    async def send_malformed(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"output": [{"type": "message", "content": [5]}]})

    async def scenario() -> tuple[int, str | None, Trajectory]:
        async with serve(ModelApi("openai-responses")) as (api, _, session):
            api.behave(send_malformed)
            body = {"model": "x", "input": HELLO, "stream": True}
            status, _, _ = await post(f"{session.base_url}/responses", body, key=session.key)
            return status, session.fault, await session.seal()

    status, fault, trajectory = asyncio.run(scenario())

    assert (status, fault) == (502, None)
    assert trajectory.calls[0].error is not None


# --- faults of the model ------------------------------------------------------------------------

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def cut_stream(*, reset: bool) -> Behaviour:
    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": None}
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await response.write(b"data: %s\n\n" % json.dumps({**head, "choices": [choice]}).encode())
        if reset:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    return behave


async def read_stream(agent: AsyncOpenAI) -> None:
    async for _ in await agent.chat.completions.create(model="x", messages=HELLO, stream=True):
        pass


@pytest.mark.parametrize("reset", [False, True], ids=["ended early", "reset"])
def test_half_a_stream_is_a_failed_call_and_an_error_for_the_agent(reset: bool) -> None:
    async def scenario() -> Trajectory:
        async with serve() as (api, _, session), open_client(session) as agent:
            api.behave(cut_stream(reset=reset))
            with pytest.raises(APIError, match="the stream of the model"):
                await read_stream(agent)
            return await session.seal()

    trajectory = asyncio.run(scenario())

    assert trajectory.messages == []
    (call,) = trajectory.calls
    assert call.error is not None
    assert "the stream of the model" in call.error
    assert call.usage is None


def test_the_connection_ends_without_the_end_of_the_body_after_half_a_stream() -> None:
    async def scenario() -> bytes:
        async with serve() as (api, _, session):
            api.behave(cut_stream(reset=False))
            received: list[bytes] = []

            async def read() -> None:
                body = {"model": "x", "messages": HELLO, "stream": True}
                headers = {"Authorization": f"Bearer {session.key}"}
                url = f"{session.base_url}/chat/completions"
                async with (
                    ClientSession() as http,
                    http.post(url, json=body, headers=headers) as response,
                ):
                    async for part in response.content.iter_any():
                        received.append(part)

            with pytest.raises(ClientPayloadError):
                await read()
            return b"".join(received)

    events = list(EventReader().feed(asyncio.run(scenario())))

    assert b"half" in events[0].data
    assert json.loads(events[-1].data)["error"]["code"] == "upstream_error"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_model_that_cannot_be_reached_is_a_bad_gateway(provider: str) -> None:
    async def scenario() -> APIStatusError:
        async with ModelApi(provider) as api:
            endpoint = api.endpoint()
        async with (
            connect(endpoint) as client,
            Gateway(client) as gateway,
            open_client(gateway.open_session()) as agent,
        ):
            with pytest.raises(APIStatusError) as caught:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return caught.value

    assert asyncio.run(scenario()).status_code == 502


def test_the_key_of_the_model_is_redacted_in_its_own_errors() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        message = f"Incorrect API key provided: {UPSTREAM_KEY}"
        return web.json_response({"error": {"message": message}}, status=401)

    async def scenario() -> tuple[APIStatusError, Trajectory]:
        async with serve() as (api, _, session), open_client(session) as agent:
            api.behave(refuse)
            with pytest.raises(APIStatusError) as caught:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return caught.value, await session.seal()

    error, trajectory = asyncio.run(scenario())

    assert error.status_code == 401
    assert UPSTREAM_KEY not in str(error)
    assert UPSTREAM_KEY not in trajectory.to_json()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_key_of_the_model_reaches_no_agent_in_an_odd_spelling_or_a_stream(stream: bool) -> None:
    key = "corp/key+0123456789"

    async def fail(request: web.Request, body: dict[str, Any]) -> web.Response:
        if stream:
            data = b"data: %s\n\n" % json.dumps({"error": {"message": f"bad key {key}"}}).encode()
            return web.Response(body=data, content_type="text/event-stream")
        quoted = key.replace("/", r"\/").replace("+", r"\u002b")
        text = f'{{"error": {{"message": "bad key {quoted}"}}}}'
        return web.Response(text=text, status=401, content_type="application/json")

    async def scenario() -> str:
        async with serve(api_key=key) as (api, _, session):
            api.behave(fail)
            url = f"{session.base_url}/chat/completions"
            body = {"messages": HELLO, "stream": stream}
            _, _, answer = await post(url, body, key=session.key)
            return answer.decode()

    assert "bad key [redacted]" in asyncio.run(scenario())


def test_a_short_key_is_redacted_in_the_conversation() -> None:
    async def scenario() -> Trajectory:
        async with serve(api_key="sk-7x") as (_, _, session):
            body = {"messages": [{"role": "user", "content": "is it sk-7x?"}]}
            await post(f"{session.base_url}/chat/completions", body, key=session.key)
            return await session.seal()

    assert "sk-7x" not in asyncio.run(scenario()).to_json_bytes().decode()


@pytest.mark.parametrize("key", ["none", "EMPTY", "ollama", "not-needed"])
def test_a_word_as_the_key_of_an_open_server_stays_in_the_conversation(key: str) -> None:
    async def scenario() -> Trajectory:
        async with serve(api_key=key) as (_, _, session):
            body = {"messages": [{"role": "user", "content": f"is it {key}?"}]}
            await post(f"{session.base_url}/chat/completions", body, key=session.key)
            return await session.seal()

    asked, answer = asyncio.run(scenario()).messages

    assert asked.text == f"is it {key}?"
    assert answer.text == f"IS IT {key}?".upper()


def test_keys_in_bodies_and_answers_are_not_recorded() -> None:
    async def scenario() -> tuple[str, str]:
        async with serve(headers={"X-Corp-Gate": "GATE-KEY-0123"}) as (_, _, session):
            # The model repeats the text in capitals, so a key in capitals comes back as it is.
            escaped = "".join(f"\\u{ord(letter):04x}" for letter in session.key)
            text = f"plain {session.key} and {UPSTREAM_KEY} and GATE-KEY-0123"
            body = (
                f'{{"model": "x", "messages": [{{"role": "user", "content": "{text} {escaped}"}}]}}'
            )
            url = f"{session.base_url}/chat/completions"
            status, _, _ = await post(url, body.encode(), key=session.key)
            assert status == 200
            return session.key, (await session.seal()).to_json()

    key, recorded = asyncio.run(scenario())

    assert key not in recorded
    assert UPSTREAM_KEY not in recorded
    assert "GATE-KEY-0123" not in recorded
    assert "[redacted]" in recorded


# --- hostile requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'"text"',
        b'{"model": "\xff\xfe"}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": 1e999',
        b'{"model": "\\ud83d',
        b'{"model": "\\ud83d", "messages": ' + b"[" * 100_000,
    ],
    ids=["empty", "text", "list", "string", "utf-8", "deep", "cut", "half", "half and deep"],
)
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_a_broken_body_is_refused_in_the_agents_api(body: bytes, path: str) -> None:
    async def scenario() -> tuple[int, Any, int]:
        async with serve() as (_, _, session):
            status, _, answer = await post(session.base_url + path, body, key=session.key)
            return status, json.loads(answer), len(session.calls)

    status, answer, calls = asyncio.run(scenario())

    assert (status, calls) == (400, 0)
    assert answer["error"]["type"] == "invalid_request_error"
    assert (answer.get("type") == "error") == (path == "/messages")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_half_a_character_in_a_request_is_replaced_and_counted(provider: str) -> None:
    # As JSON.stringify writes the output of a tool that was cut inside an emoji.
    body = rb'{"model": "x", "messages": [{"role": "user", "content": "cut \ud83D, \ud83d\ude00"}]}'

    async def scenario() -> tuple[int, Any, Trajectory]:
        async with serve(ModelApi(provider)) as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            status, _, _ = await post(url, body, key=session.key)
            return status, api.asked[0]["messages"][0]["content"], await session.seal()

    status, content, trajectory = asyncio.run(scenario())

    assert status == 200
    assert "cut \ufffd, \U0001f600" in json.dumps(content, ensure_ascii=False)
    assert trajectory.messages[0].text == "cut \ufffd, \U0001f600"
    (call,) = trajectory.calls
    lost = (call.__pydantic_extra__ or {})["lost"]
    assert [count for name, count in lost.items() if "lone surrogates" in name] == [1]


@pytest.mark.parametrize("path", ["/chat/completions", "/messages"])
def test_a_body_that_cannot_be_decompressed_is_refused(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> tuple[int, Any, int]:
        async with serve() as (_, _, session):
            headers = {"Content-Encoding": "gzip"}
            url = session.base_url + path
            status, _, answer = await post(url, b"\x1f\x8bxx", key=session.key, headers=headers)
            return status, json.loads(answer), len(session.calls)

    status, answer, calls = asyncio.run(scenario())

    assert (status, calls) == (400, 0)
    assert answer["error"]["message"] == "the body cannot be decoded; check its Content-Encoding"
    assert caplog.records == []  # no traceback for a fault of the agent


def test_a_web_page_instead_of_a_stream_is_a_bad_gateway() -> None:
    async def send_page(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(text="<html>Welcome</html>", content_type="text/html")

    async def scenario() -> tuple[int, Any, Trajectory]:
        async with serve() as (api, _, session):
            api.behave(send_page)
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO, "stream": True}
            status, _, answer = await post(url, body, key=session.key)
            return status, json.loads(answer), await session.seal()

    status, answer, trajectory = asyncio.run(scenario())

    assert status == 502
    assert "HTML page" in answer["error"]["message"]
    assert trajectory.calls[0].error == answer["error"]["message"]


def test_a_body_that_is_too_large_is_refused() -> None:
    async def scenario() -> tuple[int, int]:
        settings = GatewaySettings(max_body_bytes=1000)
        async with serve(settings=settings) as (_, _, session):
            url = f"{session.base_url}/chat/completions"
            status, _, _ = await post(url, b"x" * 2000, key=session.key)
            return status, len(session.calls)

    assert asyncio.run(scenario()) == (413, 0)


def test_a_stranger_is_refused_before_its_body_is_read() -> None:
    async def scenario() -> bytes:
        async with serve() as (_, gateway, session):
            host, port = gateway.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /s/{session.id}/v1/responses HTTP/1.1\r\nHost: x\r\n"
            writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
            return line

    assert b"401" in asyncio.run(scenario())


def test_a_connection_with_slow_headers_is_closed() -> None:
    async def scenario() -> bytes:
        settings = GatewaySettings(header_s=0.05)
        async with serve(settings=settings) as (_, gateway, _):
            host, port = gateway.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /s/x HTTP/1.1\r\nHost:")
            received = await reader.read()
            writer.close()
            return received

    assert asyncio.run(scenario()) == b""


def test_a_field_that_cannot_be_translated_is_refused_before_the_model_is_asked() -> None:
    async def scenario() -> tuple[list[tuple[int, str]], int]:
        async with serve(ModelApi("anthropic")) as (api, _, session):
            found = []
            for more in (
                {"logit_bias": {"1": 2}},
                {"n": 2},
                {"tools": [{"type": "web_search"}]},
                {"messages": [{"role": "user", "content": [{"type": "input_audio", "x": 1}]}]},
            ):
                body = {"model": "x", "messages": HELLO, **more}
                url = f"{session.base_url}/chat/completions"
                status, _, answer = await post(url, body, key=session.key)
                found.append((status, json.loads(answer)["error"]["code"]))
            return found, len(api.asked)

    found, asked = asyncio.run(scenario())

    assert found == [(400, "untranslatable")] * 4
    assert asked == 0


ERROR_EVENTS = {
    "an object with an error": b'data: {"error": {"message": "too busy", "code": 503}}\n\n',
    "an event with that name": b'event: error\ndata: {"message": "too busy"}\n\n',
    "an object of that kind": b'data: {"object": "error", "message": "too busy"}\n\n',
}


@pytest.mark.parametrize("finished", [False, True], ids=["before the end", "after the end"])
@pytest.mark.parametrize("kind", ERROR_EVENTS)
def test_an_error_in_the_stream_is_passed_on_and_is_not_an_answer(
    kind: str, finished: bool
) -> None:
    finish = "stop" if finished else None
    choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": finish}
    sent = b"data: %s\n\n" % json.dumps({"id": "1", "choices": [choice]}).encode()
    sent += ERROR_EVENTS[kind] + b"data: [DONE]\n\n"

    async def fail(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(body=sent, content_type="text/event-stream")

    async def scenario() -> tuple[bytes, Trajectory]:
        async with serve() as (api, _, session):
            api.behave(fail)
            options = {"stream": True, "stream_options": {"include_usage": True}}
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO, **options}
            _, _, received = await post(url, body, key=session.key)
            return received, await session.seal()

    received, trajectory = asyncio.run(scenario())

    assert received == sent
    assert trajectory.messages == []
    (call,) = trajectory.calls
    assert call.error is not None
    assert "too busy" in call.error


def test_a_stream_that_breaks_inside_an_event_ends_with_a_readable_error() -> None:
    choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": None}
    whole = b"data: %s\n\n" % json.dumps({"id": "1", "choices": [choice]}).encode()

    async def cut(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(whole + whole[:30])
        assert request.transport is not None
        request.transport.close()
        return response

    async def scenario() -> list[str]:
        async with serve() as (api, _, session), open_client(session) as agent:
            api.behave(cut)
            texts: list[str] = []

            async def read() -> None:
                async for chunk in await agent.chat.completions.create(
                    model="x",
                    messages=HELLO,
                    stream=True,
                    stream_options={"include_usage": True},
                ):
                    texts.append(chunk.choices[0].delta.content or "")

            with pytest.raises(APIError, match="connection lost: the stream of the model broke"):
                await read()
            return texts

    assert asyncio.run(scenario()) == ["half"]
