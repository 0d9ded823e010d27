"""An agent that is a command: it gets the prompt and writes its answer to stdout."""

import json
import os
import shlex
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from assay.errors import AssayError, ConfigError
from assay.formats import convert_agent_output
from assay.types import Message, Sample, Trajectory, compute_file_sha256, compute_sha256

from .agent import COMMAND_PREFIX, RunContext
from .agent_answer import build_trajectory
from .program_run import reach_directly, run_program
from .workspace import create_folder

# Formats of outputs without messages: such JSON is itself the answer.
_PLAIN_FORMATS = ("answer", "json", "text")
_MAX_SCRIPT_BYTES = 16 * 1024 * 1024
_PROMPT_FIELD, _WORKSPACE_FIELD = "{prompt}", "{workspace}"


class CommandAgent:
    """Runs a program for each sample, without a shell, in a new folder of its own.

    The prompt is its standard input, or replaces `{prompt}` in the command. `{workspace}` and the
    variable `ASSAY_WORKSPACE` are the folder, which is removed afterwards. The output is the
    answer: text, or messages as JSON. The identity covers the files that the command names, such
    as its script: a run cannot be resumed with another version of them.

    In a run with an `endpoint`, `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` lead to its model, and
    the calls of the program are recorded.
    """

    def __init__(self, command: str, *, cwd: str | Path | None = None) -> None:
        self._argv = _split_command_line(command)
        self._cwd = cwd
        self.name = f"{COMMAND_PREFIX}{command}"
        # The files come first: messages about another identity shorten it at its end.
        self.identity = " ".join(
            [*_digest_named_files(command), f"cmd {compute_sha256(command.encode())}"]
        )

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Return the stdout of the program. A nonzero exit status raises `AgentFault`."""
        prompt = render_prompt(context.messages)
        with ExitStack() as stack:
            workspace = str(context.workspace or stack.enter_context(create_folder()))
            argv = [
                each.replace(_WORKSPACE_FIELD, workspace).replace(_PROMPT_FIELD, prompt)
                for each in self._argv
            ]
            has_prompt = any(_PROMPT_FIELD in each for each in self._argv)
            stdin = b"" if has_prompt else prompt.encode("utf-8", "replace")
            variables = {"ASSAY_WORKSPACE": workspace, **reach_directly(context.variables)}
            end = await run_program(
                argv,
                stdin,
                cwd=self._cwd or workspace,
                variables={**os.environ, **variables, **_keep_importable()},
            )
        end.raise_for_status()
        text = end.stdout.decode("utf-8", "replace").rstrip("\r\n")
        trajectory = build_trajectory(_parse_messages(text) or text, context, end.seconds)
        wrong = text.count("\ufffd") - end.stdout.count("\ufffd".encode())
        if not wrong:
            return trajectory
        dropped = (trajectory.model_extra or {}).get("dropped", {})
        more = {"dropped": {**dropped, "output that is not UTF-8": wrong}}
        return trajectory.model_copy(update=more)


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


def _keep_importable() -> dict[str, str]:
    # `python -m agent` finds modules of the folder that the command was given in. An empty entry
    # would be the workspace: Python would run a row's `sitecustomize.py` when it starts.
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [os.getcwd(), *(os.path.abspath(each) for each in entries if each)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


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
        problem, hint = "was not found", "check that it is in PATH"
        if len(argv) > 1 and _is_file(command):
            hint = f"quote a path with spaces: {COMMAND_PREFIX}{shlex.quote(command)}"
        elif _is_file(argv[0]):
            problem = "is not executable"
            hint = f"run chmod +x {argv[0]}, or name its interpreter, as in cmd:sh {argv[0]}"
        elif os.sep in argv[0]:
            hint = "check its path, which is relative to the current folder"
        raise ConfigError(
            f"the program {argv[0]!r} {problem}", where=f"{COMMAND_PREFIX}{command}", hint=hint
        )
    # The program runs in another folder: files of this one need absolute paths. A program without
    # a slash is looked up in PATH.
    first = str(Path(argv[0]).absolute()) if os.sep in argv[0] else argv[0]
    return [first, *(str(Path(each).absolute()) if _is_file(each) else each for each in argv[1:])]


def _digest_named_files(command: str) -> list[str]:
    """Return name and digest of each file that a command names, such as its script."""
    first, *words = shlex.split(command)
    names = [first] if os.sep in first and _is_own_program(Path(first)) else []
    for before, word in zip([first, *words], words, strict=False):
        # `sh -c "python agent.py"` contains a command line in one word.
        names += [word, *word.split()]
        if before == "-m":
            module = word.replace(".", os.sep)
            names += [f"{module}.py", f"{module}{os.sep}__main__.py"]
    found: list[str] = []
    for path in (Path(name) for name in dict.fromkeys(names) if _is_file(name)):
        with suppress(OSError):  # a program may be executable without being readable
            # Larger files are data or models, which would take seconds to read at each start.
            if path.is_file() and path.stat().st_size <= _MAX_SCRIPT_BYTES:
                found.append(f"{path.name}:{compute_file_sha256(path)[:16]}")
    return found


def _is_own_program(path: Path) -> bool:
    """Whether a program is a script or in the current folder, unlike an installed interpreter."""
    if path.resolve().is_relative_to(Path.cwd()):
        return True
    with suppress(OSError), path.open("rb") as file:
        return file.read(2) == b"#!"
    return False


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False  # too long for a path, or with a NUL byte
