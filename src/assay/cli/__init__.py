"""The command line. Commands are imported when they are called, so that `--help` is instant.

Exit status: 0 pass, 1 fail, 2 usage error, 3 inconclusive (infrastructure error: a dataset or an
endpoint is unreachable, results cannot be written, or the command was aborted), 130 interrupted,
141 the reader closed stdout.
"""

import errno
import os
import sys
import traceback
from argparse import (
    REMAINDER,
    Action,
    ArgumentError,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn, cast

from assay import __version__
from assay.errors import AssayError, ConfigError

from .arguments import Command
from .exit_status import (
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_USAGE_ERROR,
    choose_exit_status,
)

__all__ = ["main"]

COMMANDS = {
    "quickstart": "evaluate a small real model, improve it and compare",
    "init": "write a small project: dataset, agent, evaluation, test and CI",
    "eval": "run the evaluation of a file or a dataset, and record it",
    "score": "score the recorded rollouts of a run again (no model calls)",
    "ingest": "import recorded agent sessions as samples",
    "check": "run rule-based checks on recorded conversations (no model calls)",
    "judge": "grade samples by a rubric with a model as judge",
    "certify": "certify an agent against its manifest",
    "runs": "list the recorded runs; delete, copy, import or wait for them",
    "sessions": "list, show and continue stored conversations with models",
    "show": "show a run, or the transcript of one of its samples",
    "compare": "compare two runs sample by sample",
    "gate": "pass or fail a run by threshold and/or baseline",
    "view": "look at runs and samples in a browser",
    "export": "write samples as files for trainers and other tools",
    "bundle": "write a run with its dataset rows and code as one file",
    "train": "train a model on samples, or on the scores of its own rollouts",
    "env": "serve environments to rollouts elsewhere",
    "gateway": "record the model calls of any agent as sessions",
    "doctor": "check the installation, the store and the endpoints",
    "docs": "open the documentation of this version, or print a page",
}
"""Each command is the module of its name in this folder."""

# Their exit status 0 is relied on, and they run user code in this process: an agent that calls
# `os._exit(0)` must not look like a pass.
SUPERVISED_COMMANDS = {("certify", "run"), ("certify", "plan")}

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# The last one counts: users append `--rubric` to a saved command to override the first.
_OVERRIDABLE_OPTIONS = frozenset({"rubric"})


class _Store(Action):
    """Stores the value of an option; the last one counts, but not beside the option's old name."""

    _may_repeat = True
    _given: str | None = None

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None
    ) -> None:
        if option is not None and self._given is not None:
            former = {option, self._given}.difference(self.option_strings)
            if former and option != self._given:
                text = f"{min(former)} is the old name of this option; pass one of the two"
                raise ArgumentError(self, text)
            if not self._may_repeat and self.dest not in _OVERRIDABLE_OPTIONS:
                raise ArgumentError(self, "the option is given more than once; pass it once")
        self._given = option
        setattr(namespace, self.dest, values)


class _StoreOnce(_Store):
    """Stores the value of an option, and refuses a second value as ambiguous."""

    _may_repeat = False


class _Parser(ArgumentParser):
    """Raises `ConfigError` for a wrong command line, where argparse would exit."""

    _store_action: type[Action] = _Store

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in (None, "store"):
            self.register("action", name, self._store_action)

    def error(self, message: str) -> NoReturn:
        hint = f"see `{self.prog} --help`"
        if message.startswith("unrecognized arguments: -"):
            wrong = message.split()[2].partition("=")[0]
            # Not the keys: a former name of an option is not suggested.
            known = {name for each in self._actions for name in each.option_strings}
            if close := get_close_matches(wrong, sorted(known), n=1):
                hint = f"did you mean {close[0]}? {hint.capitalize()}"
        raise ConfigError(message, where=self.prog, hint=hint)


class _StoreOnceParser(_Parser):
    """Refuses an option that is given twice, unless the option collects values."""

    _store_action = _StoreOnce


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names and return the exit status of the process."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal with a small charset shows `?` for other characters instead of failing.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")
    words = [word for word in sys.argv[1:] if word != "--"]
    # Only for the real command line: tests call `main` in a process that must not fork.
    if argv is None and tuple(words[:2]) in SUPERVISED_COMMANDS:
        from .supervision import supervise

        return supervise(lambda: _run_catching_errors(sys.argv[1:]))
    if argv is None:
        return _run_catching_errors(sys.argv[1:])
    try:
        return _run_catching_errors(argv)
    finally:
        # Of an interrupted command, which expects the process to end.
        if (signals := sys.modules.get(f"{__name__}.signals")) is not None:
            signals.restore_handlers()


def _run_catching_errors(argv: Sequence[str]) -> int:
    """Run a command and turn every exception into an exit status."""
    try:
        status = _dispatch_command(argv)
        # Flushed here, while a failure can still become the exit status: at interpreter exit it
        # could not. `sys.stdout` is None when the process was started without one.
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except AssayError as error:
        _print_error(str(error))
        return choose_exit_status(error)
    except KeyboardInterrupt:
        _print_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # 128 + SIGPIPE, as a shell reports it.
        return _abandon_output(141)
    except SystemExit as exit_:
        # User code that the command ran. Its status is not passed on: 0 would mean a pass.
        _print_error(f"aborted: user code called sys.exit({exit_.code!r})")
        return EXIT_INCONCLUSIVE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            _print_error(f"the results cannot be written: {error.strerror}")
            return _abandon_output(EXIT_INCONCLUSIVE)
        # Left to Python, the exit status would be 1, which means a failed gate.
        _print_error("".join(traceback.format_exception(error)).rstrip())
        return EXIT_INCONCLUSIVE


def _dispatch_command(argv: Sequence[str]) -> int:
    try:
        top = _build_top_parser()
        args = top.parse_args(argv)
        if args.command is None:
            # The first thing that many users type. The status is not 0: nothing was run.
            top.print_help(sys.stderr)
            return EXIT_USAGE_ERROR
        if args.command not in COMMANDS:
            close = get_close_matches(args.command, COMMANDS, n=1)
            raise ConfigError(
                f"no command named {args.command!r}",
                where="assay",
                hint=f"did you mean `assay {close[0]}`?"
                if close
                else "`assay --help` lists the commands",
            )
        command = cast(Command, import_module(f"assay.cli.{args.command}"))
        # Options are appended to those of a training script to override them: the last one counts.
        kind = _Parser if args.command == "train" else _StoreOnceParser
        parser = kind(prog=f"assay {args.command}", allow_abbrev=False)
        purpose = COMMANDS[args.command]
        # Not `capitalize`, which would write CI in small letters.
        parser.description = f"{purpose[0].upper()}{purpose[1:]}."
        command.configure(parser)
        try:
            parsed = _parse_arguments(parser, args.arguments)
        except ConfigError:
            # A wrong command line must not leave an old certificate that looks like its result.
            if refuse := getattr(command, "refuse", None):
                refuse(args.arguments)
            raise
    except SystemExit:
        # Argparse exits after `--help` and `--version`; its errors were raised by `_Parser`.
        return 0
    return command.main(parsed)


def _parse_arguments(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    try:
        # Plain `parse_args` takes an optional positional only before the first option.
        return parser.parse_intermixed_args(words)
    except TypeError:
        # Intermixed parsing does not support subparsers, which commands with actions use.
        return parser.parse_args(words)


def _build_top_parser() -> ArgumentParser:
    width = max(map(len, COMMANDS))
    parser = _Parser(
        prog="assay",
        description="Evaluate, gate, certify and train LLM agents on one data type.",
        epilog="commands:\n" + "\n".join(f"  {n:{width}}  {s}" for n, s in COMMANDS.items()),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    parser.add_argument("command", nargs="?", help="run one of the commands below")
    parser.add_argument("arguments", nargs=REMAINDER, help="see `assay COMMAND --help`")
    return parser


def _abandon_output(status: int) -> int:
    # Buffered output goes to /dev/null: the interpreter would fail on it again at exit.
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return status


def _print_error(text: str) -> None:
    # Imported here: `--help` stays instant.
    from assay.types import redact

    from .output import print_message

    print_message(redact(text))
