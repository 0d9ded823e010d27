"""A real forward proxy on loopback: plain requests are passed on, CONNECT opens a tunnel."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class ForwardProxy:
    """Notes what it was asked for. With `demands`, the Proxy-Authorization that it wants."""

    def __init__(
        self, *, demands: str | None = None, refuses: int | None = None, silent: bool = False
    ) -> None:
        self.silent = silent
        self.demands = demands
        self.refuses = refuses
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.tunnelled = b""
        self.url = ""
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"http://{self.host}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        # Last: from Python 3.12 on it waits for the connections that are served.
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        # A handler that ends cancelled would be reported by the server: nobody asked for that.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._pass_on(reader, writer):
                pass
        await _close(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        self.asked.append(f"{method} {target}")
        self.heads.append(head)
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        length = int(headers.get("content-length", 0))
        body = await reader.readexactly(length)
        if self.silent:
            await reader.read()
            return False
        denied = self.demands is not None and headers.get("proxy-authorization") != self.demands
        if denied or self.refuses is not None:
            status = self.refuses or 407
            writer.write(b"HTTP/1.1 %d Told\r\nContent-Length: 0\r\n\r\n" % status)
            await writer.drain()
            return True
        if method == "CONNECT":
            await self._tunnel(target, reader, writer)
            return False
        parts = urlsplit(target)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        kept = [line for line in lines if not line.lower().startswith("proxy-")]
        request = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""])
        there, on = await asyncio.open_connection(parts.hostname, parts.port)
        on.write(request.encode("latin-1") + body)
        try:
            writer.write(await _read_answer(there))
            await writer.drain()
        finally:
            await _close(on)
        return True

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = target.rpartition(":")
        there, on = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(self._pump(reader, on), self._pump(there, writer))
        finally:
            await _close(on)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.tunnelled += data
                sink.write(data)
                await sink.drain()
        sink.close()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _read_answer(there: asyncio.StreamReader) -> bytes:
    head = await there.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head + await there.readexactly(int(length))
