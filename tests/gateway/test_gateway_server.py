"""`Gateway`: who may call, what is recorded, and how faults reach the agent."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, ServerDisconnectedError, web
from openai import APIError, APIStatusError, AsyncOpenAI

from assay.errors import ConfigError
from assay.formats import EventReader
from assay.gateway import (
    Gateway,
    GatewayLimits,
    GatewaySession,
    GatewaySettings,
    RecordedCall,
    expand_request,
)
from assay.providers import connect
from assay.types import Trajectory
from model_apis import UPSTREAM_KEY, ModelApi

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def serve(
    api: ModelApi | None = None,
    *,
    settings: GatewaySettings | None = None,
    limits: GatewayLimits | None = None,
    **fields: Any,
) -> AsyncIterator[tuple[ModelApi, Gateway, GatewaySession]]:
    async with (
        api or ModelApi() as model,
        connect(model.endpoint(**fields)) as client,
        Gateway(client, settings, limits=limits) as gateway,
    ):
        yield model, gateway, gateway.open_session()


def open_client(session: GatewaySession, **options: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0, **options)


async def post(
    url: str, body: Any, *, key: str = "", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        ClientSession() as http,
        http.post(url, data=data, headers={**given, **(headers or {})}) as response,
    ):
        return response.status, dict(response.headers), await response.read()


def test_a_call_is_recorded_with_request_answer_usage_and_times() -> None:
    async def scenario() -> Trajectory:
        async with serve() as (_, _, session), open_client(session) as agent:
            await agent.chat.completions.create(model="any", messages=HELLO, temperature=0.5)
            return await session.seal()

    trajectory = asyncio.run(scenario())

    (call,) = trajectory.calls
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (20, 5)
    assert call.sampling["temperature"] == 0.5
    assert call.message_index == 1
    assert call.latency_s is not None
    assert call.wire is not None
    assert call.wire["answer"]["choices"][0]["message"]["content"] == "HELLO"
    assert expand_request(trajectory.calls, 0) == {
        "model": "any",
        "messages": HELLO,
        "temperature": 0.5,
    }


def test_settings_of_the_endpoint_override_those_of_the_agent() -> None:
    async def scenario() -> dict[str, Any]:
        async with serve(temperature=0.0, max_tokens=7) as (api, _, session):
            async with open_client(session) as agent:
                await agent.chat.completions.create(model="x", messages=HELLO, temperature=0.9)
            return api.asked[0]

    asked = asyncio.run(scenario())

    assert asked["temperature"] == 0.0
    assert asked["max_tokens"] == 7


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_seed_of_a_session_applies_to_calls_without_one(provider: str) -> None:
    async def scenario() -> list[Any]:
        async with serve(ModelApi(provider)) as (api, gateway, _):
            async with open_client(gateway.open_session(seed=5)) as agent:
                await agent.chat.completions.create(model="x", messages=HELLO)
                await agent.chat.completions.create(model="x", messages=HELLO, seed=6)
            return [asked.get("seed") for asked in api.asked]

    # Anthropic's API has no seed.
    assert asyncio.run(scenario()) == ([5, 6] if provider == "openai" else [None, None])


def test_the_concurrency_limit_of_the_model_grows_with_its_answers() -> None:
    async def scenario() -> tuple[int, int]:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            open_client(gateway.open_session()) as agent,
        ):
            before = client.limiter.limit
            for _ in range(3):
                calls = (
                    agent.chat.completions.create(model="x", messages=HELLO) for _ in range(before)
                )
                await asyncio.gather(*calls)
            return before, client.limiter.limit

    before, after = asyncio.run(scenario())

    assert after > before


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key"])
def test_the_key_is_accepted_in_each_usual_header(header: str) -> None:
    async def scenario() -> int:
        async with serve() as (_, _, session):
            value = f"Bearer {session.key}" if header == "Authorization" else session.key
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            return (await post(url, body, headers={header: value}))[0]

    assert asyncio.run(scenario()) == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/", ""])
def test_strangers_are_refused_and_not_recorded(path: str) -> None:
    async def scenario() -> list[tuple[int, int, int]]:
        async with serve() as (api, gateway, session):
            other = gateway.open_session()
            found = []
            for url, key in (
                (session.root_url + path, "wrong"),
                (session.root_url + path, ""),
                (session.root_url + path, other.key),
                (f"{gateway.url}/s/foreign{path}", session.key),
                (f"{gateway.url}{path}", session.key),
            ):
                status, _, _ = await post(url, {"model": "x", "messages": HELLO}, key=key)
                found.append((status, len(session.calls), len(api.asked)))
            return found

    assert set(asyncio.run(scenario())) == {(401, 0, 0)}


def test_headers_may_contain_any_bytes() -> None:
    async def scenario() -> list[bytes]:
        async with serve() as (_, gateway, session):
            host, port = gateway.url.removeprefix("http://").split(":")
            data = json.dumps({"model": "x", "messages": HELLO}).encode()
            statuses = []
            for header in (b"x-api-key: \xff", b"x-api-key: %s\r\nx-session-id: \xff"):
                reader, writer = await asyncio.open_connection(host, int(port))
                filled = header.replace(b"%s", session.key.encode())
                writer.write(
                    f"POST /s/{session.id}/v1/chat/completions HTTP/1.1\r\nHost: x\r\n".encode()
                    + b"%s\r\nContent-Length: %d\r\n\r\n%s" % (filled, len(data), data)
                )
                statuses.append((await reader.readline()).split()[1])
                writer.close()
                await writer.wait_closed()
            (await session.seal()).to_json()
            return statuses

    assert asyncio.run(scenario()) == [b"401", b"200"]


def test_an_unknown_path_with_the_right_key_is_not_found() -> None:
    async def scenario() -> tuple[int, bytes]:
        async with serve() as (_, _, session):
            status, _, body = await post(f"{session.base_url}/embeddings", {}, key=session.key)
            return status, body

    status, body = asyncio.run(scenario())

    assert status == 404
    assert b"/v1/responses" in body


def test_after_the_end_of_the_sample_calls_are_refused() -> None:
    async def scenario() -> tuple[APIStatusError, int, int]:
        async with serve() as (api, _, session), open_client(session) as agent:
            await agent.chat.completions.create(model="x", messages=HELLO)
            await session.seal()
            with pytest.raises(APIStatusError) as caught:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return caught.value, len((await session.seal()).calls), len(api.asked)

    error, recorded, asked = asyncio.run(scenario())

    assert error.status_code == 409
    assert error.response.headers["x-should-retry"] == "false"
    assert (recorded, asked) == (1, 1)


def test_sealing_ends_the_calls_in_flight() -> None:
    arrived = asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario() -> Trajectory:
        async with serve() as (api, _, session), open_client(session) as agent:
            api.behave(wait)
            call = asyncio.create_task(agent.chat.completions.create(model="x", messages=HELLO))
            await arrived.wait()
            trajectory = await session.seal()
            with pytest.raises(APIError):
                await call
            return trajectory

    trajectory = asyncio.run(scenario())

    assert trajectory.messages == []
    assert trajectory.calls[0].error in (
        "the call was aborted",
        "the session ended before the answer",
    )


def test_models_and_head_are_answered() -> None:
    async def scenario() -> tuple[list[str], int, dict[str, Any]]:
        async with serve() as (_, _, session), open_client(session) as agent:
            models = [model.id async for model in agent.models.list()]
            headers = {"x-api-key": session.key, "anthropic-version": "2023-06-01"}
            async with ClientSession() as http:
                async with http.head(session.root_url) as response:
                    status = response.status
                async with http.get(f"{session.base_url}/models", headers=headers) as listed:
                    return models, status, await listed.json()

    models, status, listed = asyncio.run(scenario())

    assert models == ["upstream-model"]
    assert status == 200
    assert listed["data"][0]["type"] == "model"


@pytest.mark.parametrize(("provider", "counted"), [("anthropic", 77), ("openai", 30)])
def test_tokens_are_counted_by_the_model_or_estimated(provider: str, counted: int) -> None:
    async def scenario() -> tuple[dict[str, Any], Trajectory]:
        async with serve(ModelApi(provider)) as (_, _, session):
            url = f"{session.base_url}/messages/count_tokens"
            body = {"model": "x", "messages": [{"role": "user", "content": "words " * 10}]}
            _, _, answer = await post(url, body, headers={"x-api-key": session.key})
            return json.loads(answer), await session.seal()

    answer, trajectory = asyncio.run(scenario())

    assert answer == {"input_tokens": counted}
    assert [call.purpose for call in trajectory.calls] == ["count_tokens"]
    assert trajectory.messages == []


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (GatewayLimits(max_turns=1), "max_turns"),
        (GatewayLimits(max_tokens=20), "max_tokens"),
        (GatewayLimits(max_cost_usd=1.0), "max_cost_usd (price unknown)"),
        (GatewayLimits(max_seconds=1e-9), "max_seconds"),
    ],
    ids=["turns", "tokens", "cost", "time"],
)
def test_a_limit_ends_the_session_with_an_error_that_is_not_retried(
    limits: GatewayLimits, reason: str
) -> None:
    async def scenario() -> tuple[APIStatusError, Trajectory, int]:
        async with serve(limits=limits) as (api, _, session), open_client(session) as agent:
            with pytest.raises(APIStatusError) as caught:
                await ask_twice(agent)
            return caught.value, await session.seal(), len(api.asked)

    error, trajectory, asked = asyncio.run(scenario())

    assert error.status_code == 400
    assert error.code == "limit_reached"
    assert reason in error.message
    assert error.response.headers["x-should-retry"] == "false"
    assert trajectory.termination_reason == reason
    assert trajectory.truncated
    assert asked <= 1


def test_calls_at_the_same_time_do_not_exceed_the_limit_of_turns() -> None:
    async def scenario() -> tuple[list[int], int, Trajectory]:
        async with serve(limits=GatewayLimits(max_turns=2)) as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            found = await asyncio.gather(*(post(url, body, key=session.key) for _ in range(6)))
            return sorted(each[0] for each in found), len(api.asked), await session.seal()

    statuses, asked, trajectory = asyncio.run(scenario())

    assert statuses == [200, 200, 400, 400, 400, 400]
    assert asked == 2
    assert trajectory.termination_reason == "max_turns"


def test_titles_are_not_counted_as_turns() -> None:
    title: Any = {
        "model": "x",
        "messages": [
            {"role": "system", "content": "You are a title generator. You output ONLY a title."},
            {"role": "user", "content": "hello"},
        ],
    }

    async def scenario() -> tuple[list[int], Trajectory]:
        async with serve(limits=GatewayLimits(max_turns=1)) as (_, _, session):
            url = f"{session.base_url}/chat/completions"
            turn = {"model": "x", "messages": HELLO}
            statuses = [
                (await post(url, body, key=session.key))[0] for body in (title, turn, title, turn)
            ]
            return statuses, await session.seal()

    statuses, trajectory = asyncio.run(scenario())

    assert [call.purpose for call in trajectory.calls] == ["title", "turn", "title"]
    assert statuses == [200, 200, 200, 400]


def test_the_time_limit_ends_a_stream_that_has_begun() -> None:
    async def send_slowly(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": "first"}, "finish_reason": None}
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await response.write(b"data: %s\n\n" % json.dumps({**head, "choices": [choice]}).encode())
        await asyncio.Event().wait()
        return response

    async def scenario() -> tuple[bytes, Trajectory]:
        async with serve(limits=GatewayLimits(max_seconds=2.0)) as (api, _, session):
            api.behave(send_slowly)
            received: list[bytes] = []
            body = {"model": "x", "messages": HELLO, "stream": True}
            headers = {"Authorization": f"Bearer {session.key}"}
            url = f"{session.base_url}/chat/completions"
            async with (
                ClientSession() as http,
                http.post(url, json=body, headers=headers) as response,
            ):
                try:
                    async for part in response.content.iter_any():
                        received.append(part)
                except ClientPayloadError:
                    received.append(b"broken")
            return b"".join(received), await session.seal()

    received, trajectory = asyncio.run(scenario())

    first, last = EventReader().feed(received.removesuffix(b"broken"))
    assert b"first" in first.data
    assert json.loads(last.data)["error"]["code"] == "limit_reached"
    assert received.endswith(b"broken")
    assert trajectory.termination_reason == "max_seconds"
    assert trajectory.messages == []


async def ask_twice(agent: AsyncOpenAI) -> None:
    for _ in range(2):
        await agent.chat.completions.create(model="x", messages=HELLO)


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_turns=0 is not a number above 0"):
        GatewayLimits(max_turns=0)


# --- retries ------------------------------------------------------------------------------------


def test_a_marked_retry_gets_the_recorded_answer() -> None:
    async def scenario() -> tuple[list[bytes], Trajectory, int]:
        async with serve() as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            answers = []
            for count in ("0", "1", "2"):
                headers = {"x-stainless-retry-count": count}
                answers.append((await post(url, body, key=session.key, headers=headers))[2])
            return answers, await session.seal(), len(api.asked)

    answers, trajectory, asked = asyncio.run(scenario())

    assert asked == 1
    assert [json.loads(answer) for answer in answers] == [json.loads(answers[0])] * 3
    assert [call.purpose for call in trajectory.calls] == ["turn", "retry", "retry"]
    assert [call.parent for call in trajectory.calls] == [None, 0, 0]
    usages = [call.usage.output_tokens for call in trajectory.calls if call.usage is not None]
    assert usages == [5, 0, 0]


def test_an_unmarked_repetition_is_a_new_call() -> None:
    async def scenario() -> tuple[Trajectory, int]:
        async with serve() as (api, _, session), open_client(session) as agent:
            for _ in range(2):
                await agent.chat.completions.create(model="x", messages=HELLO)
            return await session.seal(), len(api.asked)

    trajectory, asked = asyncio.run(scenario())

    assert asked == 2
    assert [branch.reason for branch in trajectory.branches] == ["root", "resampled"]


def test_a_retry_after_a_failure_asks_the_model_again() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "busy"}}, status=503)

    async def scenario() -> tuple[Trajectory, int]:
        async with serve() as (api, _, session):
            api.behave(refuse)
            client = AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=2)
            async with client as agent:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return await session.seal(), len(api.asked)

    trajectory, asked = asyncio.run(scenario())

    assert asked == 2
    assert [call.error for call in trajectory.calls] == ["busy", None]
    assert [message.text for message in trajectory.messages] == ["hello", "HELLO"]


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
    ],
    ids=["empty", "text", "list", "string", "utf-8", "deep", "cut"],
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


def test_token_ids_are_asked_for_without_streaming_and_the_agent_gets_a_stream() -> None:
    async def scenario() -> tuple[str, dict[str, Any], Trajectory]:
        api = ModelApi("openai-compatible")
        api.token_ids = True
        params = {"return_token_ids": True, "logprobs": True}
        async with (
            serve(api, extra_params=params) as (_, _, session),
            open_client(session) as agent,
        ):
            text = ""
            async for chunk in await agent.chat.completions.create(
                model="x", messages=HELLO, stream=True
            ):
                text += chunk.choices[0].delta.content or ""
            return text, api.asked[0], await session.seal()

    text, asked, trajectory = asyncio.run(scenario())

    assert text == "HELLO"
    assert asked["stream"] is False
    assert asked["return_token_ids"] is True
    (call,) = trajectory.calls
    assert call.completion_ids == (1001,)
    assert call.logprobs == (-0.5,)
    assert call.prompt_ids is not None


@pytest.mark.parametrize("fails", [False, True], ids=["answer", "error"])
def test_a_stream_is_kept_alive_while_the_whole_answer_is_awaited(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.gateway.http_answers.KEEP_ALIVE_S", 0.001)
    release = asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        await release.wait()
        if fails:
            return web.json_response({"error": {"message": "too late"}}, status=503)
        content = [{"type": "text", "text": "late"}]
        return web.json_response({"content": content, "stop_reason": "end_turn"})

    async def scenario() -> list[bytes]:
        received: list[bytes] = []
        async with serve(ModelApi("anthropic")) as (api, _, session), ClientSession() as http:
            api.behave(wait)
            body = {"model": "x", "messages": HELLO, "stream": True}
            headers = {"Authorization": f"Bearer {session.key}"}
            url = f"{session.base_url}/chat/completions"
            async with http.post(url, json=body, headers=headers) as response:
                try:
                    async for part in response.content.iter_any():
                        received.append(part)
                        release.set()
                except ClientPayloadError:
                    received.append(b"broken")
        return received

    received = asyncio.run(scenario())

    assert received[0].startswith(b": keep-alive\n\n")
    if fails:
        assert b"too late" in b"".join(received)
        assert received[-1] == b"broken"
    else:
        assert b'"late"' in b"".join(received)
        assert b"".join(received).endswith(b"data: [DONE]\n\n")


def test_an_agent_that_leaves_does_not_lose_the_answer_for_its_retry() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        arrived.set()
        await release.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "late"}}
        return web.json_response({"choices": [{**choice, "finish_reason": "stop"}]})

    async def scenario() -> tuple[str, int]:
        async with serve() as (api, _, session):
            api.behave(wait)
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            first = asyncio.create_task(post(url, body, key=session.key))
            await arrived.wait()
            first.cancel()
            headers = {"x-stainless-retry-count": "1"}
            second = asyncio.create_task(post(url, body, key=session.key, headers=headers))
            await asyncio.sleep(0)
            release.set()
            _, _, answer = await second
            return json.loads(answer)["choices"][0]["message"]["content"], len(api.asked)

    assert asyncio.run(scenario()) == ("late", 1)


def test_the_observer_sees_each_call_when_it_ends() -> None:
    seen: list[tuple[str, int | None]] = []

    def observe(session: GatewaySession, call: RecordedCall) -> None:
        seen.append((call.purpose, call.status))

    async def scenario() -> None:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client, observe=observe) as gateway,
            open_client(gateway.open_session()) as agent,
        ):
            await agent.chat.completions.create(model="x", messages=HELLO)

    asyncio.run(scenario())

    assert seen == [("turn", 200)]


def test_a_port_in_use_is_a_usage_error() -> None:
    async def scenario() -> None:
        async with ModelApi() as api, connect(api.endpoint()) as client:
            port = int(api.url.rpartition(":")[2])
            with pytest.raises(ConfigError, match="cannot listen"):
                async with Gateway(client, GatewaySettings(port=port)):
                    pass

    asyncio.run(scenario())


def test_a_gateway_that_stops_ends_its_sessions() -> None:
    async def scenario() -> bool:
        async with serve() as (_, gateway, session):
            pass
        with pytest.raises((ServerDisconnectedError, OSError)):
            await post(f"{session.base_url}/chat/completions", {}, key=session.key)
        return session.is_sealed and not gateway.is_running

    assert asyncio.run(scenario())
