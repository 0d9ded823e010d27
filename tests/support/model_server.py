"""A local server that answers as told, or breaks as told; and time that passes when told."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from assay.providers.clock import Timing
from assay.types import Endpoint, Message

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ASK = [Message(role="user", content="Say hello.")]


@dataclass
class Asked:
    """A request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ModelServer:
    """Shows one behaviour for each request, the last one again and again."""

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self._behaviours = list(behaviours)
        self._tls = tls
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self.most_at_once = 0
        self._at_once = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self._server.wait_closed()
        for _ in range(100):
            if not self.open:
                return
            await asyncio.sleep(0.005)

    def behave(self, behaviour: Behaviour) -> None:
        """Show this from now on."""
        self._behaviours = [behaviour]

    def endpoint(self, **fields: Any) -> Endpoint:
        return Endpoint(
            **{"provider": "openai", "model": "m", "api_base": self.url, "api_key": "k-1234"}
            | fields
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while (asked := await _read_request(reader)) is not None:
                self.asked.append(asked)
                behaviours = self._behaviours
                behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                try:
                    await behaviour(reader, writer)
                finally:
                    self._at_once -= 1
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def wait_until(holds: Callable[[], bool]) -> None:
    """Return once something is true; fail if it never is."""
    async with asyncio.timeout(180):
        while not holds():
            await asyncio.sleep(0.001)


async def _read_request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


def answers(body: Any, status: int = 200, *, delay_s: float = 0.0, **headers: str) -> Behaviour:
    """Answer with JSON, or with bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    head = f"HTTP/1.1 {status} Told\r\nContent-Length: {len(data)}\r\n{lines}\r\n".encode()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        writer.write(head + data)
        await writer.drain()

    return behave


def said(text: str | None = "Hello.", **more: Any) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more.pop("choice", {})}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return {"id": "c1", "model": "m-1", "choices": [choice], "usage": usage, **more}


OK = answers(said())


async def resets_mid_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"choices": [')
    await writer.drain()
    writer.transport.abort()


async def half_closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """End the stream in the middle of a body of unknown length."""
    writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"choices\r\n')
    await writer.drain()
    writer.close()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept the request and never answer, until the other side goes away."""
    await reader.read()


async def streams_forever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


@dataclass
class ToldTime:
    """Time that passes only by sleeping, which takes no time."""

    at: float = 1000.0
    slept: list[float] = field(default_factory=list)
    dice: float = 1.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds
        await asyncio.sleep(0)

    @property
    def timing(self) -> Timing:
        return Timing(
            clock=lambda: self.at, now=lambda: self.at, sleep=self.sleep, chance=lambda: self.dice
        )
