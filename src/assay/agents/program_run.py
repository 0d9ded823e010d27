"""One run of a program: no shell, bounded output, and no process left behind."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .agent import AgentFault

# A program that prints without end must not fill the memory.
_MAX_OUTPUT_BYTES = 10_000_000
_OUTPUT_TAIL_BYTES = 2000
# A grandchild that left the process group may keep the pipes open after the kill.
_DRAIN_TIMEOUT_S = 5.0
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

    `variables` are its whole environment. Raises `AgentFault` if it cannot be started or writes
    too much.
    """
    try:
        process = await asyncio.create_subprocess_exec(
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
        out, err = await _communicate(process, stdin)
    finally:
        status = await _kill_and_wait(process)
    return ProgramEnd(status, out, err)


async def _communicate(process: Process, prompt: bytes) -> tuple[bytes, bytes]:
    # `Process.communicate()` has no limit on the output.
    assert process.stdin is not None
    reading = [asyncio.create_task(_read_stream(stream)) for stream in _get_output_streams(process)]
    writing = asyncio.create_task(_write_stdin(process.stdin, prompt))
    try:
        out, err = await asyncio.gather(*reading)
    finally:
        for task in (*reading, writing):
            task.cancel()
        await asyncio.gather(*reading, writing, return_exceptions=True)
    await process.wait()
    return out, err


def _get_output_streams(process: Process) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout, process.stderr


async def _write_stdin(stream: asyncio.StreamWriter, data: bytes) -> None:
    # A program may answer without reading all of its input.
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
        stream.close()


async def _read_stream(stream: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(65536):
        size += len(part)
        if size > _MAX_OUTPUT_BYTES:
            raise AgentFault(f"the program wrote more than {_MAX_OUTPUT_BYTES:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _kill_and_wait(process: Process) -> int:
    # The whole process group: children of the program must not outlive the sample.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # asyncio closes a pipe only once it was read to its end.
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            for stream in _get_output_streams(process):
                while await stream.read(65536):
                    pass
    return await process.wait()
