"""Server processes for tests: started, asked things beside their protocol, and stopped."""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 180.0


class Started:
    """A server process that prints its port as its first line."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self._command = [sys.executable, str(program), *arguments]
        self.url = ""

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self._stop()
            raise AssertionError(f"the server did not start: {self.log}")
        self.url = f"http://127.0.0.1:{int(line)}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._log.close()

    @property
    def log(self) -> str:
        """What the server wrote to stderr."""
        self._log.seek(0)
        return self._log.read()

    def _stop(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def ask(self, path: str, body: Any = None) -> Any:
        """What the server answers on a route that is there for tests."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)
