"""A model server of fixed latency, cheap enough that it is never what a benchmark measures.

It parses no JSON: every POST gets the same chat completion after the latency. `GET /figures`
tells what was seen since the figures were last asked for.

    python benchmarks/servers.py [--latency 0.05]

prints its port and serves until its standard input is closed.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_CONNECTIONS = 4096


def _response(value: object) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


ANSWER = _response(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "benchmark",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "42"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 24, "completion_tokens": 1, "total_tokens": 25},
    }
)


@dataclass
class Figures:
    """What the server saw, by its own clock."""

    requests: int = 0
    most_in_flight: int = 0
    connections: int = 0
    first_s: float = 0.0
    """When the first request had arrived."""

    last_s: float = 0.0
    """When the last answer was sent."""


class _Desk:
    """What the connections share."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.in_flight = 0
        self.figures = Figures()

    def taken(self) -> Figures:
        figures, self.figures = self.figures, Figures()
        return figures


class _Connection(asyncio.Protocol):
    def __init__(self, desk: _Desk) -> None:
        self._desk = desk
        self._received = b""
        self._asked = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self._received = data
            return
        found = _LENGTH.search(data, 0, head + 2)
        end = head + 4 + (int(found[1]) if found else 0)
        if len(data) < end:
            self._received = data
            return
        # Clients of one request at a time: nothing can follow it.
        self._received = b""
        if data.startswith(b"GET"):
            self._transport.write(_response(asdict(self._desk.taken())))
            return
        self._count()
        asyncio.get_running_loop().call_later(self._desk.latency_s, self._answer)

    def _count(self) -> None:
        desk, figures = self._desk, self._desk.figures
        desk.in_flight += 1
        figures.requests += 1
        # Here, not when it is opened: whoever only asks for the figures does not count.
        figures.connections += not self._asked
        self._asked = True
        figures.first_s = figures.first_s or time.perf_counter()
        figures.most_in_flight = max(figures.most_in_flight, desk.in_flight)

    def _answer(self) -> None:
        self._desk.in_flight -= 1
        self._desk.figures.last_s = time.perf_counter()
        self._transport.write(ANSWER)


async def serve(latency_s: float) -> None:
    """Serve on a free port, whose number is printed, until standard input is closed."""
    loop = asyncio.get_running_loop()
    desk = _Desk(latency_s)
    server = await loop.create_server(
        lambda: _Connection(desk), "127.0.0.1", 0, backlog=_CONNECTIONS
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    closed = asyncio.Event()
    loop.add_reader(sys.stdin, closed.set)
    await closed.wait()
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model server of fixed latency.")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    asyncio.run(serve(parser.parse_args().latency))
