"""Run an environment server for a limited time, and leave no process behind."""

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
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from assay.errors import ConfigError, EnvironmentFault

from .http_client import normalize_server_url

_LOG_LINES = 100
_MAX_LOG_LINE_BYTES = 1000
_STOP_GRACE_S = 5.0
_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 0.5
_POLL_TIMEOUT_S = 5.0
# Written into the log pipe by this process: once it is read, everything before it was read too.
_LOG_MARK = b"\n\0\n"
# Process groups to kill when this process exits, for whatever reason.
_PROCESS_GROUPS: set[int] = set()


@dataclass(frozen=True)
class ServerProcess:
    """A running server that is ready."""

    url: str
    pid: int
    _log: "_LogTail" = field(repr=False)

    @property
    def log(self) -> tuple[str, ...]:
        """The last 100 lines of the server log."""
        return tuple(self._log.kept)


@asynccontextmanager
async def launch_server(
    command: str | Sequence[str], url: str, *, deadline_s: float = 60.0
) -> AsyncIterator[ServerProcess]:
    """Start `command`, wait until `url` answers, and finally stop it with all its children.

    `{port}` in both is replaced by one free port. Raises `ConfigError` if the command cannot be
    started, and `EnvironmentFault` with the last lines of its log if it is not ready in time.
    """
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ConfigError(
            f"the command of the environment server cannot be parsed: {error}"
        ) from None
    if not words:
        raise ConfigError("the command of the environment server is empty")
    if any("{port}" in text for text in (*words, url)):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        words = [word.replace("{port}", port) for word in words]
        url = url.replace("{port}", port)
    url = normalize_server_url(url)
    with _LogTail() as log:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log.write_end,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C does not reach it, and its children end with it.
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"the environment server cannot be started: {error.strerror}",
                where=words[0],
                hint="check the command",
            ) from error
        _PROCESS_GROUPS.add(process.pid)
        try:
            await _wait_for_process(process, log, url, deadline_s)
            yield ServerProcess(url, process.pid, log)
        finally:
            await _stop_process(process)


async def wait_until_ready(
    url: str, *, deadline_s: float = 60.0, alive: Callable[[], bool] = lambda: True
) -> None:
    """Poll `/health` of the server at `url` until it answers without a server error.

    Any status below 500 counts: not every server has this page. Raises `EnvironmentFault` after the
    deadline, and as soon as the server is not `alive`.
    """
    parts = urlsplit(normalize_server_url(url))
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    page = f"{scheme}://{parts.netloc}/health"
    deadline = time.monotonic() + deadline_s
    pause_s = _FIRST_POLL_S
    # Without proxies of the environment variables: the server is usually on this machine.
    async with aiohttp.ClientSession(trust_env=False) as http:
        while True:
            left_s = max(deadline - time.monotonic(), _FIRST_POLL_S)
            timeout = aiohttp.ClientTimeout(total=min(_POLL_TIMEOUT_S, left_s))
            try:
                async with http.get(page, timeout=timeout, allow_redirects=False) as response:
                    if response.status < 500:
                        return
                    problem = f"it answered HTTP {response.status}"
            except TimeoutError:
                problem = "it accepts connections but does not answer"
            except (aiohttp.ClientError, OSError, EOFError) as error:
                reason = getattr(error, "os_error", None) or error
                problem = getattr(reason, "strerror", None) or type(error).__name__
            if not alive() or time.monotonic() + pause_s >= deadline:
                raise EnvironmentFault(
                    f"the server was not ready within {deadline_s:g} s: {problem}",
                    where=page,
                    hint="check the address, or allow the server more time",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _SLOWEST_POLL_S)


async def _wait_for_process(
    process: "subprocess.Popen[bytes]", log: "_LogTail", url: str, deadline_s: float
) -> None:
    def alive() -> bool:
        return process.poll() is None

    try:
        await wait_until_ready(url, deadline_s=deadline_s, alive=alive)
        if alive():
            return
        # Another server answers at this URL.
        fault = EnvironmentFault("", where=url)
    except EnvironmentFault as error:
        fault = error
    message, hint = fault.message, fault.hint
    if not alive():
        message = f"the server exited with status {process.returncode} before it was ready"
        hint = "see its log above, or run the command by hand"
    raise EnvironmentFault(f"{message}\n{log.format_log()}", where=fault.where, hint=hint)


async def _stop_process(process: "subprocess.Popen[bytes]") -> None:
    """Stop the process group with SIGTERM, then with SIGKILL."""
    deadline = time.monotonic() + _STOP_GRACE_S
    try:
        _signal_group(process.pid, signal.SIGTERM)
        while process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
    finally:
        # Also if the wait is cancelled, and for children that outlive their parent.
        _signal_group(process.pid, signal.SIGKILL)
        # With a timeout: a process in an uninterruptible state must not block the caller.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
            _PROCESS_GROUPS.discard(process.pid)


def _signal_group(group: int, number: signal.Signals) -> None:
    # The group has ended. macOS reports PermissionError for processes not yet reaped.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@atexit.register
def _kill_groups() -> None:
    for group in _PROCESS_GROUPS:
        _signal_group(group, signal.SIGKILL)


class _LogTail:
    """The last lines of a server log, read by a thread so that the pipe never fills up."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self.kept: deque[str] = deque(maxlen=_LOG_LINES)
        self._ended = False
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._read, name="environment log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        # Wakes the thread. Waiting for the end of the stream could take for ever: a process that
        # left the group may still have the write end open.
        os.write(self.write_end, _LOG_MARK)
        self._thread.join()
        os.close(self.write_end)
        os.close(self._read_end)

    def format_log(self) -> str:
        """Return the lines with a heading, for an error message."""
        self._settled.clear()
        os.write(self.write_end, _LOG_MARK)
        # Bounded: the message is worth more than the very last lines.
        self._settled.wait(1.0)
        lines = tuple(self.kept)
        if not lines:
            return "the server wrote nothing"
        return "\n".join(["the last lines of its log:", *(f"  | {line}" for line in lines)])

    def _read(self) -> None:
        rest = b""
        while not self._ended:
            # Blocks until the server writes or `_LOG_MARK` arrives.
            *lines, rest = (rest + os.read(self._read_end, 65536)).split(b"\n")
            for line in lines:
                text = line[:_MAX_LOG_LINE_BYTES].decode("utf-8", "replace").rstrip()
                # The log is shown in a terminal, where control characters would act.
                text = "".join(c if c.isprintable() else " " for c in text).rstrip()
                if text:
                    self.kept.append(text)
            if _LOG_MARK.strip() in lines:
                self._settled.set()
            # An endless line must not fill the memory.
            rest = rest[:_MAX_LOG_LINE_BYTES]
