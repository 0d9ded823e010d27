"""`EnvironmentClient`: what may be an address, what is sent, and how bad answers are told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from assay.environments.remote.http_client import (
    CapacityQueue,
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    ServerBusy,
    ServerResponse,
    TimedOut,
    normalize_server_url,
    retry_while_busy,
)
from assay.errors import ConfigError, EnvironmentFault
from assay.providers.reply_redaction import Redactor
from misbehaving import Exchange, MisbehavingServer

TOKEN = "s3cret-token-for-this"
BODY = {"messages": [{"content": "x"}]}
"""What the misbehaving server reads a request by."""


def run(
    react: Callable[[Exchange], Awaitable[None]],
    test: Callable[[EnvironmentClient], Awaitable[None]],
    *,
    timeout_s: float = 60.0,
) -> MisbehavingServer:
    async def asking(url: str) -> None:
        async with aiohttp.ClientSession() as http:
            await test(EnvironmentClient(url, http, TOKEN, timeout_s=timeout_s))

    with MisbehavingServer(react) as server:
        asyncio.run(asking(f"http://{server.host}/base?key=hidden-in-query"))
    return server


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://host.example/env/", "https://host.example/env"),
        ("ws://[::1]:9/ws#part", "ws://[::1]:9/ws"),
        ("wss://host.example/ws?x=1", "wss://host.example/ws?x=1"),
    ],
)
def test_an_address_is_used_without_what_does_not_belong_to_it(given: str, used: str) -> None:
    assert normalize_server_url(given) == used


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8000", "file:///etc/passwd", "http://", "http://host:0", "http://host:99999",
     "http://ho st", "http://host\\path", "http://host/\n", "gopher://host", "http://[::1"],
)  # fmt: skip
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must be an http, https, ws or wss URL"):
        normalize_server_url(url)


@pytest.mark.parametrize("url", ["http://me:hunter22@host", "http://hunter22@host/x"])
def test_an_address_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="pass the secret as `token`") as refused:
        normalize_server_url(url)
    assert "hunter22" not in str(refused.value)


def test_a_request_goes_below_the_address_with_the_token() -> None:
    async def react(exchange: Exchange) -> None:
        await exchange.answer(200, {"fine": True})

    async def test(link: EnvironmentClient) -> None:
        answer = await link.ask("POST", link.at("/sessions"), body=BODY, headers={"X-More": "1"})

        assert answer.json() == {"fine": True}

    call = run(react, test).calls[0]
    assert call.path == "/base/sessions?key=hidden-in-query"
    assert call.headers["authorization"] == f"Bearer {TOKEN}"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-more"] == "1"


def test_nothing_that_is_shown_holds_a_secret() -> None:
    async def react(exchange: Exchange) -> None:
        await exchange.answer(500, f"{TOKEN} \x1b[31m hidden-in-query".encode())

    async def test(link: EnvironmentClient) -> None:
        answer = await link.ask("POST", link.at("/x"), body=BODY)

        assert answer.status == 500
        with pytest.raises(InvalidResponse) as failed:
            answer.json()
        for shown in (str(failed.value), answer.excerpt, repr(answer), repr(link), link.where):
            assert TOKEN not in shown
            assert "hidden-in-query" not in shown
            assert "\x1b" not in shown

    run(react, test)


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0.5", 0.5), ("soon", None), ("-1", None), ("nan", None)]
)
def test_the_time_to_wait_is_read_or_unknown(header: str, seconds: float | None) -> None:
    async def react(exchange: Exchange) -> None:
        await exchange.answer(429, {}, Retry_After=header)

    async def test(link: EnvironmentClient) -> None:
        assert (await link.ask("POST", link.at("/x"), body=BODY)).retry_after_s == seconds

    run(react, test)


def test_an_answer_without_a_time_to_wait_has_none() -> None:
    async def react(exchange: Exchange) -> None:
        await exchange.answer(429, {})

    async def test(link: EnvironmentClient) -> None:
        assert (await link.ask("POST", link.at("/x"), body=BODY)).retry_after_s is None

    run(react, test)


async def too_long(exchange: Exchange) -> None:
    await exchange.answer(200, b"x" * (4 * 1024 * 1024 + 1))


async def elsewhere(exchange: Exchange) -> None:
    await exchange.answer(302, b"", Location="http://127.0.0.1:9/")


async def silent(exchange: Exchange) -> None:
    await exchange.keep_silent()


async def broken(exchange: Exchange) -> None:
    await exchange.reset()


async def half(exchange: Exchange) -> None:
    await exchange.half_close()


@pytest.mark.parametrize(
    ("react", "kind"),
    [
        (too_long, InvalidResponse),
        (elsewhere, InvalidResponse),
        (silent, TimedOut),
        (broken, ConnectionFailed),
        (half, ConnectionFailed),
    ],
)
def test_each_way_of_not_answering_is_told_apart(
    react: Callable[[Exchange], Awaitable[None]], kind: type[Exception]
) -> None:
    async def test(link: EnvironmentClient) -> None:
        with pytest.raises(kind) as failed:
            await link.ask("POST", link.at("/x"), body=BODY)

        assert str(failed.value).startswith(link.where)
        assert "hidden-in-query" not in str(failed.value)
        assert failed.value.__cause__ is None

    run(react, test, timeout_s=0.3 if kind is TimedOut else 60.0)


@pytest.mark.parametrize("body", [b"{", b"NaN", b'{"reward": Infinity}', b"\xff"])
def test_what_is_not_json_is_garbled(body: bytes) -> None:
    async def react(exchange: Exchange) -> None:
        await exchange.answer(200, body)

    async def test(link: EnvironmentClient) -> None:
        answer = await link.ask("POST", link.at("/x"), body=BODY)
        with pytest.raises(InvalidResponse, match=r"the answer \(HTTP 200\) is not JSON"):
            answer.json()

    run(react, test)


def run_bounded(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(180):
            await test()

    asyncio.run(bounded())


async def waiting(room: CapacityQueue, *names: str) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Tasks that wait in this order, and the list in which each says that it was called."""
    called: list[str] = []

    async def wait(name: str) -> None:
        await room.wait(60)
        called.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in names]
    await asyncio.sleep(0)
    return called, tasks


def test_each_release_calls_whoever_waits_longest() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second", "third")

        room.release()
        await tasks[0]
        assert called == ["first"]

        room.release()
        room.release()
        await asyncio.gather(*tasks)
        assert called == ["first", "second", "third"]

    run_bounded(test)


def test_nobody_waits_much_longer_than_the_server_asked() -> None:
    async def test() -> None:
        clock = asyncio.get_running_loop()
        started = clock.time()
        await CapacityQueue(chance=lambda: 1.0).wait(0.1)

        # With the most jitter, and far from the bound of the test.
        assert 0.14 <= clock.time() - started < 30

    run_bounded(test)


def test_a_release_with_nobody_waiting_is_no_promise() -> None:
    async def test() -> None:
        room = CapacityQueue()
        room.release()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(room.wait(60), 0.01)

    run_bounded(test)


def test_a_call_to_somebody_who_is_cancelled_goes_to_the_next() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second")

        room.release()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert called == ["second"]

    run_bounded(test)


def test_whoever_is_cancelled_is_not_called_any_more() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second")

        tasks[0].cancel()
        await asyncio.sleep(0)
        room.release()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert called == ["second"]

    run_bounded(test)


class Room:
    """Where waiting takes no time, and moves the clock."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def wait(self, retry_after_s: float) -> None:
        self.waited.append(retry_after_s)

    def clock(self) -> float:
        return sum(self.waited)


def played(busy_times: int, retry_after_s: float | None, queue_s: float = 100.0) -> list[float]:
    """How long is waited for a server that is busy this often."""
    room: Any = Room()
    link = EnvironmentClient("http://h", None, queue_s=queue_s, queue=room)  # type: ignore[arg-type]  # not used
    left = [ServerBusy(retry_after_s)] * busy_times

    async def attempt() -> str:
        if left:
            raise left.pop()
        return "given"

    assert asyncio.run(retry_while_busy(link, attempt, clock=room.clock)) == "given"
    waited: list[float] = room.waited
    return waited


def test_a_place_that_is_free_is_taken_at_once() -> None:
    assert played(0, 5.0) == []


def test_the_time_that_the_server_names_is_waited() -> None:
    assert played(3, 2.5) == [2.5, 2.5, 2.5]


def test_a_full_server_is_never_asked_again_at_once() -> None:
    assert played(2, 0.0) == [0.1, 0.1]


def test_a_second_is_waited_where_no_time_is_named() -> None:
    assert played(2, None) == [1.0, 1.0]


def test_no_longer_is_waited_than_the_queue_allows() -> None:
    assert played(3, 40.0) == [40.0, 40.0, 20.0]

    with pytest.raises(EnvironmentFault, match=r"the server had no free session for 100 s"):
        played(4, 40.0)


def answered(status: int, **headers: str) -> ServerResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ServerResponse(status, CIMultiDict(named), b"", "here", Redactor([]))


def test_only_a_full_server_is_busy() -> None:
    for full in (answered(429), answered(429, Retry_After="3"), answered(503, Retry_After="3")):
        with pytest.raises(ServerBusy):
            ServerBusy.check(full)

    for other in (answered(200), answered(404), answered(500), answered(503)):
        ServerBusy.check(other)


def test_the_time_is_read_from_the_answer() -> None:
    with pytest.raises(ServerBusy) as busy:
        ServerBusy.check(answered(429, Retry_After="0.5"))

    assert busy.value.retry_after_s == 0.5
