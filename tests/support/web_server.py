"""A small web server on this machine, and stand-ins for names and connections to others."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

ROW = b'{"id": "a", "question": "1+1?", "answer": "2"}\n'


class WebServer:
    """Answers each path with what was put there, and remembers what it was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.port = 0

    def put(self, path: str, body: bytes = ROW, *, status: int = 200, **headers: str) -> str:
        """Answer `path` so; its address. Headers have dashes for `_`; empty ones are left out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (status, named, body)
        return f"http://127.0.0.1:{self.port}{path}"

    def redirect(self, path: str, to: str) -> str:
        return self.put(path, b"", status=302, Location=to)


@contextmanager
def serving() -> Iterator[WebServer]:
    web = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            web.asked.append((self.path, dict(self.headers)))
            status, headers, body = web.pages.get(path, (404, {}, b""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Names(AbstractResolver):
    """Looks names up in a table: the answers for each, in the order they are asked for."""

    def __init__(self, **answers: list[str]) -> None:
        self._answers = {name.replace("_", "."): found for name, found in answers.items()}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = self._answers.get(host)
        if found is None:
            raise OSError(None, "no such name")
        address = found.pop(0) if len(found) > 1 else found[0]
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        pass


class Diverted:
    """Makes sockets that reach the server here, whatever address they are told to dial."""

    def __init__(self, port: int) -> None:
        self.dialled: list[str] = []
        diverted = self

        class Socket(socket.socket):
            def connect(self, address: Any) -> None:
                diverted.dialled.append(address[0])
                super().connect(("127.0.0.1", port))

        self.new_socket = Socket
