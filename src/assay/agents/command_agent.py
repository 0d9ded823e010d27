"""An agent that is a command line: it reads the prompt on stdin and writes its answer."""

import asyncio
import os
import shlex
import shutil
import signal
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from assay.errors import ConfigError
from assay.types import Sample, sha256_of

from .certified_agent import AgentFault, Answered
from .function_agent import trajectory_of

_MOST_BYTES = 10_000_000
_TOLD_BYTES = 2000
_LETTING_GO_S = 5.0


class CommandAgent:
    """Runs a program for each sample. No shell reads the command line."""

    def __init__(self, command: str) -> None:
        self._argv = _parted(command)
        self.name = f"cmd:{command}"
        self.sha256 = None
        self.identity = f"cmd {sha256_of(command.encode())}"

    async def answer(self, sample: Sample, *, seed: int | None) -> Answered:
        """What the program wrote to stdout. Any exit status but 0 is a failure."""
        asked = prompt_text(sample).encode("utf-8", "replace")
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            out, err = await _exchanged(process, asked)
            seconds = time.perf_counter() - started
        finally:
            status = await _ended(process)
        if status:
            raise AgentFault(f"exit status {status}{_told(err)}")
        text = out.decode("utf-8", "replace").rstrip("\r\n")
        return Answered(trajectory_of(text, sample, seconds), seconds)

    async def close(self) -> None:
        """Nothing is held."""


def prompt_text(sample: Sample) -> str:
    """The prompt as one text: the question alone, or each message after its role."""
    messages = sample.messages
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def _parted(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"is no command line: {error}", where=f"cmd:{command}") from None
    if not argv:
        raise ConfigError("no command is given", where="--runner cmd:", hint="cmd:./agent --flag")
    if shutil.which(argv[0]) is None:
        raise ConfigError(
            f"there is no program {argv[0]!r}", where="--runner", hint="is it in PATH?"
        )
    return argv


async def _exchanged(process: Process, asked: bytes) -> tuple[bytes, bytes]:
    """What the program wrote until it ended its output."""
    assert process.stdin is not None
    reading = [asyncio.create_task(_read(stream)) for stream in _outputs(process)]
    writing = asyncio.create_task(_write(process.stdin, asked))
    try:
        out, err = await asyncio.gather(*reading)
    finally:
        for task in (*reading, writing):
            task.cancel()
        await asyncio.gather(*reading, writing, return_exceptions=True)
    await process.wait()
    return out, err


def _outputs(process: Process) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout, process.stderr


async def _write(stream: asyncio.StreamWriter, data: bytes) -> None:
    # A program may answer without having read everything.
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
        stream.close()


async def _read(stream: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(65536):
        size += len(part)
        if size > _MOST_BYTES:
            raise AgentFault(f"the program wrote more than {_MOST_BYTES:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _ended(process: Process) -> int:
    """End the program and what it started, whatever it is still doing; its exit status."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # A pipe is let go of when it was read to its end. Somebody who left the group may hold it.
    with suppress(TimeoutError):
        async with asyncio.timeout(_LETTING_GO_S):
            for stream in _outputs(process):
                while await stream.read(65536):
                    pass
    return await process.wait()


def _told(err: bytes) -> str:
    text = err[-_TOLD_BYTES:].decode("utf-8", "replace").strip()
    cut = "…" if len(err) > _TOLD_BYTES else ""
    return f"; stderr: {cut}{text}" if text else ", without a word on stderr"
