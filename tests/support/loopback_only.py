"""Runs modules as `python -m` does, one after the other, where nothing but loopback is reached.

Takes a JSON list on stdin, of `module`, `words` and `env`, and prints what became of each. For
packages that take long to load: one process loads them once for all.
"""

import io
import json
import os
import runpy
import socket
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

_connect = socket.socket.connect
_getaddrinfo = socket.getaddrinfo
_LOCAL = ("127.0.0.1", "::1", "localhost", None)
_left: list[str] = []


def _guarded(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple):
        _stay(address[0])
    _connect(self, address)


def _resolved(host: Any, *args: Any, **kwargs: Any) -> Any:
    _stay(host)
    return _getaddrinfo(host, *args, **kwargs)


def _stay(host: Any) -> None:
    if host not in _LOCAL:
        _left.append(str(host))
        raise OSError(f"{host} is not on this machine")


def _run(command: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(command["env"])
    sys.argv = [command["module"], *command["words"]]
    status: object = 0
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            runpy.run_module(command["module"], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code or 0
    return {"status": status, "stdout": out.getvalue(), "stderr": err.getvalue(), "left": _left}


if __name__ == "__main__":
    socket.socket.connect = _guarded  # type: ignore[method-assign,assignment]  # the guard
    socket.getaddrinfo = _resolved
    print(json.dumps([_run(command) for command in json.load(sys.stdin)]))
