"""An agent that is a command: it gets the prompt and writes its answer to stdout."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from assay.errors import AssayError, ConfigError
from assay.formats import convert_agent_output
from assay.types import Message, Sample, Trajectory, compute_sha256

from .agent import COMMAND_PREFIX, AgentFault, RunContext
from .agent_answer import build_trajectory

# A program that prints without end must not fill the memory.
_MAX_OUTPUT_BYTES = 10_000_000
_STDERR_TAIL_BYTES = 2000
# A grandchild that left the process group may keep the pipes open after the kill.
_DRAIN_TIMEOUT_S = 5.0
# Formats of outputs without messages: such JSON is itself the answer.
_PLAIN_FORMATS = ("answer", "json", "text")
_PROMPT_FIELD, _WORKSPACE_FIELD = "{prompt}", "{workspace}"


class CommandAgent:
    """Runs a program for each sample, without a shell, in a new folder of its own.

    The prompt is its standard input, or replaces `{prompt}` in the command. `{workspace}` and the
    variable `ASSAY_WORKSPACE` are the folder, which is removed afterwards. The output is the
    answer: text, or messages as JSON. In a run with an `endpoint`, `OPENAI_BASE_URL` and
    `ANTHROPIC_BASE_URL` lead to its model, and the calls of the program are recorded.
    """

    def __init__(self, command: str, *, cwd: str | Path | None = None) -> None:
        self._argv = _split_command_line(command)
        self._cwd = cwd
        self.name = f"{COMMAND_PREFIX}{command}"
        self.identity = f"cmd {compute_sha256(command.encode())}"

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Return the stdout of the program. A nonzero exit status raises `AgentFault`."""
        prompt = render_prompt(context.messages)
        with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as workspace:
            argv = [
                each.replace(_WORKSPACE_FIELD, workspace).replace(_PROMPT_FIELD, prompt)
                for each in self._argv
            ]
            has_prompt = any(_PROMPT_FIELD in each for each in self._argv)
            stdin = b"" if has_prompt else prompt.encode("utf-8", "replace")
            started = time.perf_counter()
            variables = {"ASSAY_WORKSPACE": workspace, **_reach_directly(context.variables)}
            out = await _run_program(argv, stdin, cwd=self._cwd or workspace, variables=variables)
            seconds = time.perf_counter() - started
        text = out.decode("utf-8", "replace").rstrip("\r\n")
        return build_trajectory(_parse_messages(text) or text, context, seconds)


def _parse_messages(text: str) -> object | None:
    """Return the messages in an output; None for text, and for JSON that is itself the answer."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
        is_answer = convert_agent_output(value).format in _PLAIN_FORMATS
    except (AssayError, ValueError, RecursionError):
        return None
    return None if is_answer else value


async def _run_program(
    argv: list[str], stdin: bytes, *, cwd: str | Path, variables: dict[str, str]
) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env={**os.environ, **variables, **_keep_importable()},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # A prompt with a NUL byte, or one longer than an argument may be.
        raise AgentFault(f"the program {argv[0]!r} could not be started: {error}") from error
    try:
        out, err = await _communicate(process, stdin)
    finally:
        status = await _kill_and_wait(process)
    if status:
        tail = err[-_STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
        cut = "…" if len(err) > _STDERR_TAIL_BYTES else ""
        stderr = f"stderr: {cut}{tail}" if tail else "stderr is empty"
        raise AgentFault(f"the program exited with status {status}; {stderr}")
    return out


def _reach_directly(variables: dict[str, str]) -> dict[str, str]:
    # A proxy for the internet cannot reach the gateway on this machine.
    if not variables:
        return {}
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = ",".join(part for part in (given, "127.0.0.1,localhost") if part)
    return {**variables, "NO_PROXY": hosts, "no_proxy": hosts}


def _keep_importable() -> dict[str, str]:
    # `python -m agent` finds modules of the folder that the command was given in.
    paths = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def render_prompt(messages: list[Message]) -> str:
    """Return the prompt as text: a single message alone, several with their roles."""
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def _split_command_line(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise ConfigError(
            f"the command line cannot be parsed: {error}", where=f"{COMMAND_PREFIX}{command}"
        ) from None
    if not argv:
        raise ConfigError(
            "the agent has no command",
            where=COMMAND_PREFIX,
            hint="write it after the colon: cmd:./agent --flag",
        )
    if shutil.which(argv[0]) is None:
        raise ConfigError(
            f"the program {argv[0]!r} was not found",
            where=f"{COMMAND_PREFIX}{command}",
            hint="check that it is in PATH",
        )
    # The program runs in another folder: files of this one need absolute paths. A program without
    # a slash is looked up in PATH.
    first = str(Path(argv[0]).absolute()) if os.sep in argv[0] else argv[0]
    return [first, *(str(Path(each).absolute()) if _is_file(each) else each for each in argv[1:])]


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False  # too long for a path, or with a NUL byte


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
