"""Starting an environment server for the time it is needed, and leaving nothing behind."""

import asyncio
import atexit
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import aiohttp

from assay.errors import ConfigError, EnvironmentFault

from .http_client import normalize_server_url

if TYPE_CHECKING:
    from aiohttp import ClientSession

_LOG_LINES = 100
_MAX_LOG_LINE_BYTES = 1000
_STOP_GRACE_S = 5.0
_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 0.5
_POLL_TIMEOUT_S = 5.0
_LOG_MARK = b"\n\0\n"
"""Written by ourselves into a server's log, to know that everything before it was read."""

_PROCESS_GROUPS: set[int] = set()
"""Process groups that are ours to end, whatever happens to this process."""


@dataclass(frozen=True)
class ServerProcess:
    """A server that was started and answers."""

    url: str
    pid: int
    _log: "_LogTail" = field(repr=False)

    @property
    def log(self) -> tuple[str, ...]:
        """The last 100 lines that the server wrote."""
        return self._log.lines()


@asynccontextmanager
async def launch_server(
    command: str | Sequence[str], url: str, *, deadline_s: float = 60.0
) -> AsyncIterator[ServerProcess]:
    """Start `command` and wait until `url` answers; at the end, stop it with all its children.

    `{port}` in both is replaced by one free port. Raises `ConfigError` if the command cannot be
    started and `EnvironmentFault`, with the last lines of its log, if it is not ready in time.
    """
    words, url = _fill_port(command, url)
    with _LogTail() as log:
        process = _start_process(words, log)
        try:
            await _wait_for_process(process, log, url, deadline_s)
            yield ServerProcess(url, process.pid, log)
        finally:
            await _stop_process(process)


async def wait_until_ready(
    url: str, *, deadline_s: float = 60.0, alive: Callable[[], bool] = lambda: True
) -> None:
    """Poll `/health` of the server at `url` until it answers without a server error.

    A server that has no such page is ready when it says so. Raises `EnvironmentFault` after the
    deadline, and as soon as it is not `alive`.
    """
    page = _build_health_url(url)
    deadline = time.monotonic() + deadline_s
    pause_s = _FIRST_POLL_S
    async with aiohttp.ClientSession(trust_env=False) as http:
        while (trouble := await _probe_health(http, page, deadline)) is not None:
            if not alive() or time.monotonic() + pause_s >= deadline:
                raise EnvironmentFault(
                    f"not ready within {deadline_s:g} s: {trouble}",
                    where=page,
                    hint="check the address, or give the server more time",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _SLOWEST_POLL_S)


def _build_health_url(url: str) -> str:
    parts = urlsplit(normalize_server_url(url))
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}/health"


async def _probe_health(http: "ClientSession", page: str, deadline: float) -> str | None:
    """What keeps the server from being ready; None when nothing does."""
    left_s = max(deadline - time.monotonic(), _FIRST_POLL_S)
    timeout = aiohttp.ClientTimeout(total=min(_POLL_TIMEOUT_S, left_s))
    try:
        async with http.get(page, timeout=timeout, allow_redirects=False) as response:
            return None if response.status < 500 else f"it answers HTTP {response.status}"
    except TimeoutError:
        return "it accepts connections and does not answer"
    except (aiohttp.ClientError, OSError, EOFError) as error:
        reason = getattr(error, "os_error", None) or error
        return getattr(reason, "strerror", None) or type(error).__name__


def _fill_port(command: str | Sequence[str], url: str) -> tuple[list[str], str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words:
        raise ConfigError("the command of the environment server is empty")
    if any("{port}" in text for text in (*words, url)):
        port = str(_find_free_port())
        words = [word.replace("{port}", port) for word in words]
        url = url.replace("{port}", port)
    return words, normalize_server_url(url)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_process(words: list[str], log: "_LogTail") -> "subprocess.Popen[bytes]":
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log.entrance,
            stderr=subprocess.STDOUT,
            # A group of its own: Ctrl-C is for us, and its children can be ended with it.
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(
            f"the environment server cannot be started: {error.strerror}",
            where=words[0],
            hint="check the command",
        ) from error
    _PROCESS_GROUPS.add(process.pid)
    return process


async def _wait_for_process(
    process: "subprocess.Popen[bytes]", log: "_LogTail", url: str, deadline_s: float
) -> None:
    def alive() -> bool:
        return process.poll() is None

    try:
        await wait_until_ready(url, deadline_s=deadline_s, alive=alive)
        if alive():
            return
        # Something else answers at this address.
        fault = EnvironmentFault("", where=url)
    except EnvironmentFault as error:
        fault = error
    message, hint = fault.message, fault.hint
    if not alive():
        message = f"the server ended with status {process.returncode} before it was ready"
        hint = "its log says why; try the command by hand"
    raise EnvironmentFault(f"{message}\n{log.shown()}", where=fault.where, hint=hint)


async def _stop_process(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its group: politely, then for certain."""
    deadline = time.monotonic() + _STOP_GRACE_S
    try:
        _signal_group(process.pid, signal.SIGTERM)
        while process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    finally:
        # Also when the waiting is cancelled, and for children that outlive their parent.
        _signal_group(process.pid, signal.SIGKILL)
        # Bounded: a process that even this does not end must not hold up everything else.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
            _PROCESS_GROUPS.discard(process.pid)


def _signal_group(group: int, number: signal.Signals) -> None:
    # Gone already, or (as macOS says it) only waiting to be reaped.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@atexit.register
def _kill_groups() -> None:
    for group in _PROCESS_GROUPS:
        _signal_group(group, signal.SIGKILL)


class _LogTail:
    """Reads what a server writes, as fast as it writes it, and keeps the last lines."""

    def __init__(self) -> None:
        self._exit, self.entrance = os.pipe()
        self._kept: deque[str] = deque(maxlen=_LOG_LINES)
        self._ended = False
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._read, name="environment log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended = True
        # Wakes the thread. Waiting for the end of the stream instead could take forever: a
        # process that left the group may still hold the other end.
        os.write(self.entrance, _LOG_MARK)
        self._thread.join()
        os.close(self.entrance)
        os.close(self._exit)

    def lines(self) -> tuple[str, ...]:
        return tuple(self._kept)

    def shown(self) -> str:
        """The lines under a heading."""
        self._settled.clear()
        os.write(self.entrance, _LOG_MARK)
        self._settled.wait(1.0)
        lines = self.lines()
        if not lines:
            return "it wrote nothing"
        return "\n".join(["the last lines that it wrote:", *(f"  | {line}" for line in lines)])

    def _read(self) -> None:
        rest = b""
        while not self._ended:
            *lines, rest = (rest + os.read(self._exit, 65536)).split(b"\n")
            self._kept.extend(shown for line in lines if (shown := _to_printable(line)))
            if _LOG_MARK.strip() in lines:
                self._settled.set()
            # A line without an end must not fill the memory.
            rest = rest[:_MAX_LOG_LINE_BYTES]


def _to_printable(line: bytes) -> str:
    text = line[:_MAX_LOG_LINE_BYTES].decode("utf-8", "replace").rstrip()
    return "".join(c if c.isprintable() else " " for c in text).rstrip()
