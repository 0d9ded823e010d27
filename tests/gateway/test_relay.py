"""Answers on their way through the gateway: how much of them it takes, and what they cost."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web

from assay.formats import EventReader
from assay.gateway import GatewayLimits
from assay.types import Trajectory, Usage
from gateway_servers import HELLO, post, serve
from model_apis import ModelApi
from streamed_answers import WRITERS

PATHS = {"openai": "chat/completions", "openai-responses": "responses", "anthropic": "messages"}
MEGABYTE = 2**20
TOO_LARGE = "the answer of the model has more than 67,108,864 bytes"


async def read_broken_stream(url: str, body: dict[str, Any], key: str) -> bytes:
    """Return what arrives before the connection breaks."""
    received: list[bytes] = []

    async def read() -> None:
        async with (
            ClientSession() as http,
            http.post(url, json=body, headers={"Authorization": f"Bearer {key}"}) as response,
        ):
            async for part in response.content.iter_any():
                received.append(part)

    with pytest.raises(ClientPayloadError):
        await read()
    return b"".join(received)


@pytest.mark.parametrize(
    ("api", "provider"),
    [
        ("openai", "openai"),
        ("openai-responses", "openai-responses"),
        ("anthropic", "anthropic"),
        ("openai", "anthropic"),
        ("anthropic", "gemini"),
    ],
)
def test_a_stream_that_is_larger_than_any_answer_is_cut_and_recorded_as_a_failed_call(
    api: str, provider: str
) -> None:
    sent = 0

    async def send(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for each in WRITERS[provider]([], ["x" * MEGABYTE] * 100, []):
            await response.write(each)
            sent += len(each)
        return response

    async def scenario() -> tuple[bytes, Trajectory]:
        async with serve(ModelApi(provider)) as (model, _, session):
            model.behave(send)
            body = {"model": "x", "max_tokens": 9, "stream": True}
            body["input" if api == "openai-responses" else "messages"] = HELLO
            url = f"{session.base_url}/{PATHS[api]}"
            received = await read_broken_stream(url, body, session.key)
            return received, await session.seal()

    received, trajectory = asyncio.run(scenario())

    last = json.loads(list(EventReader().feed(received))[-1].data)
    error = last.get("error") or last
    assert error["message"] == TOO_LARGE
    assert sent < 80 * MEGABYTE  # the model was not read to its end
    assert trajectory.messages == []
    (call,) = trajectory.calls
    assert call.error == TOO_LARGE
    assert call.usage is None


def test_a_long_page_of_an_error_is_passed_on_in_part() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(text="overloaded; " * 20_000, status=503)

    async def scenario() -> tuple[int, bytes]:
        async with serve() as (model, _, session):
            model.behave(refuse)
            url = f"{session.base_url}/chat/completions"
            status, _, answer = await post(url, {"messages": HELLO}, key=session.key)
            return status, answer

    status, answer = asyncio.run(scenario())

    assert status == 503
    assert json.loads(answer)["error"]["message"].startswith("overloaded; overloaded; ")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_redirect_is_not_followed_and_is_a_bad_gateway(provider: str, stream: bool) -> None:
    async def redirect(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(status=307, headers={"Location": "/v1/elsewhere"})

    async def scenario() -> tuple[int, Any, int]:
        async with serve(ModelApi(provider)) as (model, _, session):
            model.behave(redirect)
            url = f"{session.base_url}/chat/completions"
            body = {"messages": HELLO, "stream": stream}
            status, _, answer = await post(url, body, key=session.key)
            return status, json.loads(answer), len(model.asked)

    status, answer, asked = asyncio.run(scenario())

    assert status == 502
    assert "redirects are not followed" in answer["error"]["message"]
    assert asked == 1


def test_an_error_without_a_body_names_its_status() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(status=503)

    async def scenario() -> tuple[int, Any]:
        async with serve() as (model, _, session):
            model.behave(refuse)
            url = f"{session.base_url}/chat/completions"
            status, _, answer = await post(url, {"messages": HELLO}, key=session.key)
            return status, json.loads(answer)

    status, answer = asyncio.run(scenario())

    assert status == 503
    assert answer["error"]["message"] == "the model answered 503 without a body"


@pytest.mark.parametrize("path", ["chat/completions", "messages"], ids=["same", "translated"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_that_the_limit_of_tokens_cut_inside_a_character_is_an_answer(
    path: str, stream: bool
) -> None:
    async def cut(request: web.Request, body: dict[str, Any]) -> web.Response:
        message = {"role": "assistant", "content": "so \ud83d"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "length"}]})

    async def scenario() -> tuple[int, Trajectory]:
        async with serve() as (model, _, session):
            model.behave(cut)
            url = f"{session.base_url}/{path}"
            body = {"messages": HELLO, "max_tokens": 9, "stream": stream}
            status, _, _ = await post(url, body, key=session.key)
            return status, await session.seal()

    status, trajectory = asyncio.run(scenario())

    assert status == 200
    assert trajectory.messages[-1].text == "so \ufffd"


async def answer_badly(request: web.Request, body: dict[str, Any]) -> web.Response:
    return web.json_response({"choices": [], "usage": {"prompt_tokens": 900}})


async def answer_with_a_page(request: web.Request, body: dict[str, Any]) -> web.Response:
    return web.Response(text="<p>an answer?</p>")


async def hang_up(request: web.Request, body: dict[str, Any]) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def answer_late(request: web.Request, body: dict[str, Any]) -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


async def refuse_for_now(request: web.Request, body: dict[str, Any]) -> web.Response:
    return web.json_response({"error": {"message": "later"}}, status=429)


async def record_usage(behave: Any, path: str, **limits: Any) -> tuple[int, Usage | None]:
    async with serve(limits=GatewayLimits(**limits), timeout_s=1.0) as (model, _, session):
        model.behave(behave)
        body = {"messages": HELLO, "max_tokens": 9}
        status, _, _ = await post(f"{session.base_url}/{path}", body, key=session.key)
        (call,) = (await session.seal()).calls
        return status, call.usage


@pytest.mark.parametrize("path", ["chat/completions", "messages"], ids=["same", "translated"])
@pytest.mark.parametrize("behave", [answer_badly, answer_with_a_page, hang_up, answer_late])
def test_the_usage_of_a_call_that_the_model_may_have_worked_on_is_unknown(
    behave: Any, path: str
) -> None:
    status, usage = asyncio.run(record_usage(behave, path))

    assert status in (502, 504)
    assert usage is None


def test_the_usage_of_a_call_that_a_time_limit_ended_is_unknown() -> None:
    assert asyncio.run(record_usage(answer_late, "chat/completions", max_seconds=0.3)) == (
        400,
        None,
    )


@pytest.mark.parametrize("path", ["chat/completions", "messages"], ids=["same", "translated"])
def test_a_call_that_the_model_refused_is_free(path: str) -> None:
    free = Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)

    assert asyncio.run(record_usage(refuse_for_now, path)) == (429, free)
