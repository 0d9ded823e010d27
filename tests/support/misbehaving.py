"""A model server on loopback that answers, breaks or keeps silent as it is told.

It runs in a thread of its own, so that it outlives the processes that call it.
"""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 180.0
"""How long a test waits for what must happen; reached only when it does not."""


@contextmanager
def refused_port() -> Iterator[int]:
    """A port that refuses connections: taken, so that no other test gets it, and not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@dataclass(frozen=True)
class Call:
    """One request as the server saw it."""

    sample: str
    """What was asked last; empty when the call asks for no completion."""

    number: int
    """1 for the first call about this sample."""

    path: str
    headers: dict[str, str]
    body: bytes
    arrived: float = field(default_factory=time.time)


class Exchange:
    """A call that waits for a reaction."""

    def __init__(
        self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.call = call
        self._reader = reader
        self._writer = writer

    @property
    def is_gone(self) -> bool:
        """Whether the caller has hung up."""
        return self._reader.at_eof()

    async def say(self, text: str) -> None:
        """Answer as a model does."""
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 5, "completion_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await self.answer(200, {"model": "m", "choices": [choice], "usage": usage})

    async def echo(self) -> None:
        """Answer with what was asked."""
        await self.say(self.call.sample)

    async def answer(self, status: int, body: Any = None, **headers: str) -> None:
        """Answer with JSON, or with bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        head = f"HTTP/1.1 {status} Told\r\nContent-Length: {len(data)}\r\n{''.join(lines)}\r\n"
        self._writer.write(head.encode("latin-1") + data)
        await self._writer.drain()

    async def reset(self) -> None:
        """Break the connection without a word."""
        self._writer.transport.abort()

    async def half_close(self) -> None:
        """End the stream in the middle of an answer."""
        self._writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"choices": [')
        await self._writer.drain()
        self._writer.close()

    async def keep_silent(self) -> None:
        """Accept the request and never answer, until the caller goes away."""
        await self._reader.read()
        self._writer.close()


React = Callable[[Exchange], Awaitable[None]]


async def echoes(exchange: Exchange) -> None:
    """What a server does that does not misbehave."""
    await exchange.echo()


class MisbehavingServer:
    """Reacts to each call as told, and remembers all of them."""

    def __init__(self, react: React = echoes) -> None:
        self.react = react
        self.calls: list[Call] = []
        self.open = 0
        """Connections that callers hold."""

        self.at_once = 0
        """Calls without an answer so far."""

        self._numbers: Counter[str] = Counter()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._port = 0
        self._serving: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def asked(self, start: int = 0) -> Counter[str]:
        """How often each sample was asked about, from the `start`-th call on."""
        return Counter(call.sample for call in self.calls[start:])

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return once something has become true of this server."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, "the server waited in vain"
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(PATIENCE_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.open += 1
        try:
            # A caller that is gone, or the end of the test: nobody is left to be told.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing():
                    await self._exchange(reader, writer)
        finally:
            self.open -= 1
            self._serving.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = await self._read_call(reader)
        self.calls.append(call)
        self.at_once += 1
        try:
            await self.react(Exchange(call, reader, writer))
        finally:
            self.at_once -= 1

    async def _read_call(self, reader: asyncio.StreamReader) -> Call:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        sample = str(json.loads(body)["messages"][-1]["content"]) if body else ""
        self._numbers[sample] += 1
        return Call(sample, self._numbers[sample], first.split(" ")[1], headers, body)


class Gate:
    """Answers so many calls of a server; the others wait until it is opened."""

    def __init__(self, server: MisbehavingServer, *, answered: int) -> None:
        self._left = answered
        self._is_open = False
        server.react = self._react

    def open(self) -> None:
        self._is_open = True

    async def _react(self, exchange: Exchange) -> None:
        self._left -= 1
        waits = self._left < 0
        while waits and not self._is_open:
            if exchange.is_gone:
                return
            await asyncio.sleep(0.005)
        await exchange.echo()
