"""One run of a program: no shell, bounded output, and no process left behind."""

import asyncio
import os
import re
import signal
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .agent import AgentFault

# A program that prints without end must not fill the memory.
_MAX_OUTPUT_BYTES = 10_000_000
_OUTPUT_TAIL_BYTES = 2000
# A process in the background may keep the pipes open long after its program has ended.
_BACKGROUND_OUTPUT_S = 5.0
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)|COOKIE|DSN", re.IGNORECASE)
# Variables that point programs to the user's own settings, or to another model.
_FOREIGN_NAME = re.compile(
    r"XDG_|ANTHROPIC|OPENAI|CLAUDE|CODEX|OPENCODE|PI_|ASSAY_|NODE_OPTIONS$", re.IGNORECASE
)


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float = 0.0
    """The time until the program ended, or until its output was complete soon after."""

    def raise_for_status(self) -> None:
        """Raise `AgentFault` with the end of the output for a status other than 0."""
        if not self.status:
            return
        # Some programs, such as Claude Code, print their errors to stdout.
        for name, data in (("stderr", self.stderr), ("stdout", self.stdout)):
            if tail := data[-_OUTPUT_TAIL_BYTES:].decode("utf-8", "replace").strip():
                cut = "…" if len(data) > _OUTPUT_TAIL_BYTES else ""
                shown = f"{name}: {cut}{tail}"
                break
        else:
            shown = "its output is empty"
        ended = f"exited with status {self.status}"
        if self.status < 0:
            # Real-time signals have a number only.
            names = {each.value: each.name for each in signal.Signals}
            ended = f"was killed by {names.get(-self.status, f'signal {-self.status}')}"
        raise AgentFault(f"the program {ended}; {shown}")


def list_safe_variables() -> dict[str, str]:
    """Return the environment without secrets, for programs that run what a model writes."""
    return {
        name: value
        for name, value in os.environ.items()
        if not _SECRET_NAME.search(name) and not _FOREIGN_NAME.match(name)
    }


def reach_directly(variables: Mapping[str, str]) -> dict[str, str]:
    """Add to the variables of a gateway that no proxy leads to it; nothing without a gateway."""
    # A proxy for the internet cannot reach the gateway on this machine.
    if not variables:
        return {}
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = ",".join(part for part in (given, "127.0.0.1,localhost") if part)
    return {**variables, "NO_PROXY": hosts, "no_proxy": hosts}


async def run_program(
    argv: list[str], stdin: bytes, *, cwd: str | Path, variables: dict[str, str]
) -> ProgramEnd:
    """Run a program to its end, in a process group that is killed afterwards.

    `variables` are its whole environment. The output of processes in the background is read for 5
    seconds after the end of the program. Raises `AgentFault` if it cannot be started or writes too
    much.
    """
    started = time.perf_counter()
    try:
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            _ProgramPipes,
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # A prompt with a NUL byte, or one longer than an argument may be.
        raise AgentFault(f"the program {argv[0]!r} could not be started: {error}") from error
    try:
        # A program may end, or close its input, without reading all of it.
        writing = transport.get_pipe_transport(0)
        assert isinstance(writing, asyncio.WriteTransport)
        writing.write(stdin)
        writing.close()
        await pipes.ended.wait()
        seconds = time.perf_counter() - started
        with suppress(TimeoutError):
            async with asyncio.timeout(_BACKGROUND_OUTPUT_S):
                await pipes.closed.wait()
                seconds = time.perf_counter() - started
    finally:
        try:
            # The whole process group: children of the program must not outlive the sample.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await pipes.exited.wait()
        finally:
            # Without waiting for the pipes: a process that left the group may hold them.
            transport.close()
    if pipes.is_full:
        raise AgentFault(f"the program wrote more than {_MAX_OUTPUT_BYTES:,} bytes")
    status = transport.get_returncode()
    assert status is not None
    return ProgramEnd(status, pipes.read(1), pipes.read(2), seconds)


class _ProgramPipes(asyncio.SubprocessProtocol):
    """The output of a program, up to a limit."""

    # `asyncio.subprocess.Process` waits for the end of the output before it knows of the exit.

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.ended = asyncio.Event()
        """The program has exited, or written too much."""
        self.closed = asyncio.Event()
        """The output is complete, or too much."""
        self.is_full = False
        self._output = {1: bytearray(), 2: bytearray()}
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        output = self._output[fd]
        self.is_full = self.is_full or len(output) + len(data) > _MAX_OUTPUT_BYTES
        if self.is_full:
            self.ended.set()
            self.closed.set()
        else:
            output += data

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.ended.set()

    def read(self, fd: int) -> bytes:
        """Return the output to stdout (1) or stderr (2)."""
        return bytes(self._output[fd])
