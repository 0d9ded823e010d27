"""A stand-in for Vertex's evaluation service and Google's token server, on loopback."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

TOKEN = "a-token-of-the-stand-in"

Answer = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
"""What the service says to a request: status and body."""


def scored(score: float | None, *verdicts: bool, **fields: Any) -> tuple[int, dict[str, Any]]:
    """An answer with a score and verdicts on as many rubrics."""
    rubrics = [
        {
            "evaluatedRubric": {"content": {"property": {"description": f"rubric {place}"}}},
            "verdict": verdict,
            "reasoning": "so it is",
        }
        for place, verdict in enumerate(verdicts)
    ]
    return 200, {"metricResults": [{"score": score, "rubricVerdicts": rubrics, **fields}]}


def refused(status: int, word: str) -> tuple[int, dict[str, Any]]:
    """An answer of an error, as Google writes them."""
    return status, {"error": {"code": status, "message": "not today", "status": word}}


class Service(ThreadingHTTPServer):
    """Answers as it is told to, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.tokens: set[str | None] = set()
        self.token_status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def credentials(self, path: Path) -> Path:
        """Writes the key of a service account that gets its tokens here."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        account = {
            "type": "service_account",
            "project_id": "shop",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "judge@shop.example",
            "token_uri": f"{self.url}/token",
        }
        path.write_text(json.dumps(account))
        return path


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            given = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            status, value = self.server.token_status, given
            if status != 200:
                value = {"error": "invalid_grant", "error_description": "revoked"}
        else:
            request = json.loads(body)
            self.server.asked.append(request)
            self.server.paths.append(self.path)
            self.server.tokens.add(self.headers["Authorization"])
            status, value = self.server.answer(request)
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answer: Answer) -> Iterator[Service]:
    """Inside of it the service is there."""
    with Service(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
