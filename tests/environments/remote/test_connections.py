"""Connections that bring no request are closed; those that do are served meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from assay.environments import (
    BasicEnvironment,
    EnvironmentServer,
    RemoteEnvironments,
    ServerSettings,
)
from assay.environments.remote import connections
from assay.environments.remote.connections import KEEP_ALIVE_S, Connections

HALF_A_HEAD = b"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HALF_A_BODY = HALF_A_HEAD + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
PATIENCE_S = 120.0


class Half:
    """A connection that sends a part of a request and then nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ended(self) -> bytes:
        """What the server sends until it hangs up."""
        data = b""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                data = await self.reader.read()
        return data


async def half_open(server: EnvironmentServer, count: int, sent: bytes = HALF_A_HEAD) -> list[Half]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    opened = [Half(*await asyncio.open_connection(host, int(port))) for _ in range(count)]
    for each in opened:
        each.writer.write(sent)
        await each.writer.drain()
    return opened


def serving(play: Callable[[EnvironmentServer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        chosen = ServerSettings(**settings)
        async with EnvironmentServer(lambda task: BasicEnvironment(), chosen) as server:
            await play(server)

    asyncio.run(run())


async def close(halves: list[Half]) -> None:
    for half in halves:
        half.writer.close()
        with suppress(ConnectionError):
            await half.writer.wait_closed()


async def act(server: EnvironmentServer) -> None:
    async with RemoteEnvironments(server.url) as remote:
        environment = remote.make()
        await environment.open(seed=1)
        await environment.close()


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD], ids=["nothing", "half a head"])
def test_four_hundred_half_open_requests_are_hung_up_on(sent: bytes) -> None:
    async def play(server: EnvironmentServer) -> None:
        halves = await half_open(server, 400, sent)
        await act(server)

        await asyncio.gather(*(half.ended() for half in halves))

        await act(server)
        await close(halves)

    serving(play, header_s=0.2)


@pytest.mark.parametrize("sent", [HALF_A_HEAD, HALF_A_BODY], ids=["half a head", "half a body"])
def test_only_so_many_connections_may_bring_no_whole_request(sent: bytes) -> None:
    async def play(server: EnvironmentServer) -> None:
        halves = await half_open(server, 30, sent)
        watched = [asyncio.create_task(half.ended()) for half in halves]
        async with asyncio.timeout(PATIENCE_S):
            while sum(task.done() for task in watched) < 25:
                await asyncio.sleep(0.01)
        await act(server)

        assert sum(not task.done() for task in watched) <= 5
        for task in watched:
            task.cancel()
        await asyncio.gather(*watched, return_exceptions=True)
        await close(halves)

    serving(play, header_s=3600.0, most_idle=5)


def test_a_body_that_never_comes_is_answered_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_BODY_TIMEOUT_S", 0.05)

    async def play(server: EnvironmentServer) -> None:
        (half,) = await half_open(server, 1, HALF_A_BODY)

        async with asyncio.timeout(PATIENCE_S):
            assert (await half.reader.readline()).startswith(b"HTTP/1.1 408 ")
        await close([half])

    serving(play)


class FakeConnection:
    def __init__(self) -> None:
        self.closed = False

    def force_close(self) -> None:
        self.closed = True


def test_those_that_never_brought_a_request_are_closed_first() -> None:
    watched = Connections(header_s=10.0, most_idle=2)
    served, older, newer, busy = (FakeConnection() for _ in range(4))
    watched._served.add(id(served))
    watched._busy[id(busy)] = 1
    watched._idle_since = {id(served): 0.0, id(older): 1.0, id(newer): 2.0, id(busy): 0.0}

    watched.sweep([older, served, busy, newer], now=3.0)

    assert [each.closed for each in (served, older, newer, busy)] == [False, True, False, False]


def test_those_whose_body_is_awaited_are_closed_before_those_that_were_served() -> None:
    watched = Connections(header_s=10.0, most_idle=2)
    served, older, newer = (FakeConnection() for _ in range(3))
    watched._served.add(id(served))
    watched._idle_since = {id(served): 0.0}
    watched._awaiting_body = {id(older): 1.0, id(newer): 2.0}

    watched.sweep([older, served, newer], now=50.0)

    assert [each.closed for each in (served, older, newer)] == [False, True, False]


def test_a_refused_caller_is_answered_before_its_body_comes() -> None:
    async def play(server: EnvironmentServer) -> None:
        (half,) = await half_open(server, 1, HALF_A_BODY)

        async with asyncio.timeout(PATIENCE_S):
            assert (await half.reader.readline()).startswith(b"HTTP/1.1 401 ")
        await close([half])

    serving(play, token="0123456789abcdef")


def test_a_connection_that_is_used_is_kept_longer() -> None:
    watched = Connections(header_s=10.0, most_idle=100)
    served, silent = FakeConnection(), FakeConnection()
    watched.sweep([served, silent], now=0.0)
    watched._served.add(id(served))

    watched.sweep([served, silent], now=9.0)
    assert (served.closed, silent.closed) == (False, False)
    watched.sweep([served, silent], now=10.0)
    assert (served.closed, silent.closed) == (False, True)
    watched.sweep([served], now=KEEP_ALIVE_S)
    assert served.closed


def test_what_is_gone_is_forgotten() -> None:
    watched = Connections(header_s=10.0, most_idle=100)
    watched.sweep([FakeConnection() for _ in range(5)], now=0.0)
    watched._awaiting_body[7] = 0.0

    watched.sweep([], now=1.0)

    assert (watched._busy, watched._served, watched._idle_since) == ({}, set(), {})
    assert watched._awaiting_body == {}


def test_a_request_under_way_is_not_hung_up_on() -> None:
    class Slow(BasicEnvironment):
        async def open(self, *, seed: int | None = None) -> Any:
            await asyncio.sleep(0.3)
            return ()

    async def run() -> None:
        settings = ServerSettings(header_s=0.05, most_idle=1)
        async with (
            EnvironmentServer(lambda task: Slow(), settings) as server,
            aiohttp.ClientSession() as client,
            client.post(f"{server.url}/sessions", json={}) as answer,
        ):
            assert answer.status == 201

    asyncio.run(run())
