"""JSON-RPC over HTTP: what counts as an answer, and what is said of all else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as LocalServer

from assay.environments.remote.http_client import (
    MAX_SERVER_RESPONSE_BYTES,
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    ServerBusy,
    TimedOut,
)
from assay.environments.remote.json_rpc import JsonRpc, RpcError, TokenRejected
from assay.errors import EnvironmentFault

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SECRET = "tok-0123456789abcdef"


def asked_of(handler: Handler, *, path: str = "/mcp", timeout_s: float = 5.0) -> Any:
    """What a call to a server with this handler gives."""

    async def run() -> Any:
        application = web.Application(client_max_size=10**8)
        application.router.add_route("*", "/{path:.*}", handler)
        async with LocalServer(application) as server, aiohttp.ClientSession() as http:
            url = str(server.make_url(path))
            rpc = JsonRpc(EnvironmentClient(url, http, SECRET, timeout_s), url)
            return (await rpc.call("a/b", {"x": 1}, {"X-More": "1"})).value

    return asyncio.run(run())


def always(text: str, status: int = 200, kind: str = "application/json", **more: Any) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=text, status=status, content_type=kind, **more)

    return handle


GOOD = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"y": 2}})


def test_a_request_is_posted_whole_and_its_result_returned() -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((await request.json(), dict(request.headers)))
        return web.Response(text=GOOD, content_type="application/json")

    assert asked_of(handle) == {"y": 2}

    ((body, headers),) = seen
    assert body == {"jsonrpc": "2.0", "id": 1, "method": "a/b", "params": {"x": 1}}
    assert headers["Accept"] == "application/json, text/event-stream"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["X-More"] == "1"


def error(**fields: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": fields})


REFUSALS = {
    "by code": (always(error(code=-32602, message="no")), -32602, 200),
    "by code and status": (always(error(code=-32601, message="no"), 404), -32601, 404),
    "at a broken server": (always(error(code=-32603, message="no"), 500), -32603, 500),
    "by status": (always("nothing here", 404), None, 404),
    "by an empty success": (always("", 204), None, 204),
}


@pytest.mark.parametrize(("handler", "code", "status"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_carries_code_and_status(handler: Handler, code: int | None, status: int) -> None:
    with pytest.raises(RpcError) as refused:
        asked_of(handler)

    assert (refused.value.code, refused.value.status) == (code, status)


FAULTS: dict[str, tuple[Handler, type[Exception], str]] = {
    "down": (always("down", 500), EnvironmentFault, "HTTP 500: down"),
    "unavailable": (always("down", 503), EnvironmentFault, "HTTP 503: down"),
    "no JSON": (always("<html>"), InvalidResponse, "not JSON-RPC"),
    "other JSON": (always('{"y": 2}'), InvalidResponse, "not JSON-RPC"),
    "another's answer": (
        always(GOOD.replace('"id": 1', '"id": 7')),
        InvalidResponse,
        "not JSON-RPC",
    ),
    "a list": (
        always('{"jsonrpc": "2.0", "id": 1, "result": []}'),
        InvalidResponse,
        "not JSON-RPC",
    ),
    "an error without a code": (always(error(message="no")), InvalidResponse, "not JSON-RPC"),
    "denied": (always("", 401), TokenRejected, "`token`"),
    "forbidden": (always("", 403), TokenRejected, "`token`"),
    "too long": (always("x" * (MAX_SERVER_RESPONSE_BYTES + 1)), InvalidResponse, "longer than"),
    "full": (always("", 429), ServerBusy, "no session free"),
    "event of another kind": (
        always("data: 7\n\n", kind="text/event-stream"),
        InvalidResponse,
        "an event",
    ),
    "no event": (always(": hello\n\n", kind="text/event-stream"), ConnectionFailed, "ended before"),
    "half an event": (
        always("data: {", kind="text/event-stream"),
        ConnectionFailed,
        "ended before",
    ),
    "elsewhere": (
        always("", 307, headers={"Location": "http://elsewhere.example/mcp/"}),
        InvalidResponse,
        "the server redirects to another address",
    ),
    "another path": (
        always("", 307, headers={"Location": "/other"}),
        InvalidResponse,
        "the server redirects to another address",
    ),
    "moved for good": (
        always("", 301, headers={"Location": "/mcp/"}),
        InvalidResponse,
        "the server redirects to another address",
    ),
    "in a circle": (
        always("", 308, headers={"Location": "/mcp"}),
        InvalidResponse,
        "the server redirects to another address",
    ),
    "nowhere": (always("", 302), InvalidResponse, "the server redirects to another address"),
}


@pytest.mark.parametrize(("handler", "kind", "words"), FAULTS.values(), ids=FAULTS)
def test_what_is_no_answer_is_a_fault(handler: Handler, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        asked_of(handler)


def test_a_slash_more_or_less_is_followed_once() -> None:
    posted: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        posted.append(request.path)
        if not request.path.endswith("/"):
            return web.Response(status=307, headers={"Location": f"{request.path}/"})
        return web.Response(text=GOOD, content_type="application/json")

    assert asked_of(handle) == {"y": 2}
    assert posted == ["/mcp", "/mcp/"]


@pytest.mark.parametrize(
    ("status", "there"), [(307, "http://elsewhere.example/mcp/"), (301, "/mcp/"), (303, "/mcp/")]
)
def test_another_host_or_another_way_is_not_tried(status: int, there: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/mcp":
            return web.Response(status=status, headers={"Location": there})
        return web.Response(text=GOOD, content_type="application/json")

    with pytest.raises(
        InvalidResponse, match=rf"the server redirects to another address \(HTTP {status}\)"
    ):
        asked_of(handle)


def test_slashes_without_end_are_not_followed() -> None:
    async def handle(request: web.Request) -> web.Response:
        other = request.path.rstrip("/") if request.path.endswith("/") else f"{request.path}/"
        return web.Response(status=308, headers={"Location": other})

    with pytest.raises(InvalidResponse, match="the server redirects to another address"):
        asked_of(handle)


def test_a_hanging_server_is_left_after_the_timeout() -> None:
    async def handle(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    with pytest.raises(TimedOut, match=r"the server did not answer `a/b` within 0\.1 s"):
        asked_of(handle, timeout_s=0.1)


def test_a_stream_of_events_that_never_ends_is_bounded() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        note = b'data: {"jsonrpc": "2.0", "method": "note"}\n\n' * 10_000
        while True:
            await response.write(note)

    with pytest.raises(InvalidResponse, match="longer than"):
        asked_of(handle)


def test_a_stream_that_stays_open_after_the_answer_is_left() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {GOOD}\n\n".encode())
        await asyncio.sleep(5)
        return response

    assert asked_of(handle, timeout_s=60.0) == {"y": 2}


def test_a_server_that_asks_again_and_again_gets_one_answer_to_each_question() -> None:
    answers: list[Any] = []

    async def ask_back(request: web.Request) -> web.StreamResponse:
        posted = await request.json()
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        question = {"jsonrpc": "2.0", "id": f"q{len(answers)}", "method": "ping"}
        await stream.write(f"data: {json.dumps(question)}\n\n".encode())
        if "method" in posted:
            await stream.write(f"data: {GOOD}\n\n".encode())
        else:
            # In the stream after an answer, a question must not be read.
            answers.append(posted)
        return stream

    assert asked_of(ask_back) == {"y": 2}

    assert answers == [{"jsonrpc": "2.0", "id": "q0", "result": {}}]


def test_the_timeout_is_that_of_all_requests_together() -> None:
    async def ask_back(request: web.Request) -> web.StreamResponse:
        if "method" not in await request.json():
            await asyncio.Event().wait()
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for number in range(1000):
            question = {"jsonrpc": "2.0", "id": number, "method": "ping"}
            await stream.write(f"data: {json.dumps(question)}\n\n".encode())
        return stream

    with pytest.raises(TimedOut, match=r"did not answer `a/b` within 0\.2 s"):
        asked_of(ask_back, timeout_s=0.2)


def test_an_event_may_have_several_lines() -> None:
    lines = json.dumps(json.loads(GOOD), indent=1).splitlines()
    text = "".join(f"data: {line}\r\n" for line in lines) + "\r\n"

    assert asked_of(always(text, kind="text/event-stream")) == {"y": 2}


def test_the_token_is_kept_out_of_what_is_said() -> None:
    for handler in (
        always(f"you sent {SECRET}", 500),
        always(f"you sent {SECRET}", 404),
        always(error(code=1, message=f"you sent {SECRET}")),
        always(f"you sent {SECRET}"),
    ):
        with pytest.raises((RpcError, EnvironmentFault)) as refused:
            asked_of(handler)
        assert SECRET not in str(refused.value)
        assert "you sent" in str(refused.value)


def test_a_notification_that_is_refused_is_told() -> None:
    async def run(status: int) -> None:
        application = web.Application()
        application.router.add_post("/mcp", always("", status))
        async with LocalServer(application) as server, aiohttp.ClientSession() as http:
            url = str(server.make_url("/mcp"))
            await JsonRpc(EnvironmentClient(url, http), url).notify("notifications/initialized", {})

    asyncio.run(run(202))
    with pytest.raises(RpcError, match="HTTP 400"):
        asyncio.run(run(400))
