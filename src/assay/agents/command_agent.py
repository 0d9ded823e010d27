"""An agent that is a command: it reads the prompt on stdin and writes the answer to stdout."""

import asyncio
import os
import shlex
import shutil
import signal
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from assay.errors import ConfigError
from assay.types import Sample, compute_sha256

from .certified_agent import AgentAnswer, AgentFault
from .function_agent import build_trajectory

# A program that prints without end must not fill the memory.
_MAX_OUTPUT_BYTES = 10_000_000
_STDERR_TAIL_BYTES = 2000
# A grandchild that left the process group may keep the pipes open after the kill.
_DRAIN_TIMEOUT_S = 5.0


class CommandAgent:
    """Runs a program for each sample, without a shell."""

    def __init__(self, command: str) -> None:
        self._argv = _split_command_line(command)
        self.name = f"cmd:{command}"
        self.sha256 = None
        self.identity = f"cmd {compute_sha256(command.encode())}"

    async def answer(self, sample: Sample, *, seed: int | None) -> AgentAnswer:
        """Return the stdout of the program. A nonzero exit status raises `AgentFault`."""
        prompt = render_prompt(sample).encode("utf-8", "replace")
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            out, err = await _communicate(process, prompt)
            seconds = time.perf_counter() - started
        finally:
            status = await _kill_and_wait(process)
        if status:
            tail = err[-_STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
            cut = "…" if len(err) > _STDERR_TAIL_BYTES else ""
            stderr = f"stderr: {cut}{tail}" if tail else "stderr is empty"
            raise AgentFault(f"the program exited with status {status}; {stderr}")
        text = out.decode("utf-8", "replace").rstrip("\r\n")
        return AgentAnswer(build_trajectory(text, sample, seconds), seconds)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


def render_prompt(sample: Sample) -> str:
    """Return the prompt as text: a single message alone, several with their roles."""
    messages = sample.messages
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def _split_command_line(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise ConfigError(
            f"the command line cannot be parsed: {error}", where=f"cmd:{command}"
        ) from None
    if not argv:
        raise ConfigError(
            "the runner has no command",
            where="--runner cmd:",
            hint="write it after the colon: cmd:./agent --flag",
        )
    if shutil.which(argv[0]) is None:
        raise ConfigError(
            f"the program {argv[0]!r} was not found",
            where="--runner",
            hint="check that it is in PATH",
        )
    return argv


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
