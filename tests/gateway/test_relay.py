"""Answers on their way through the gateway: how much of them it takes."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web

from assay.formats import EventReader
from assay.types import Trajectory
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
