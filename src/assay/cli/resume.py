"""Commands to run next: what inspects a run or resumes it. They work when pasted into a shell.

They contain no password: the shell takes the address of a store from a variable instead.
"""

import os
import re
import shlex
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from .output import sanitize_lines

# The start of an address. A store URL is known by its scheme, also when a slash is missing:
# a mistyped URL still contains the password.
_ADDRESS_START = re.compile(r"://|^postgres[a-z+]*:/*", re.IGNORECASE)

# An address that certainly contains no secret: at most a user, and no query.
_PLAIN_ADDRESS = re.compile(
    r"postgres(ql)?(\+\w+)?://([\w.-]+@)?[\w.-]*(:\d+)?(/[\w.-]*)?", re.ASCII
)

# Options that define the run, its speed or its limits. Those of the display are not repeated.
_EVAL_RESUME_OPTIONS = (
    "agent workspace setup check prompt scorer dataset split judge model key_env max_samples "
    "repeats max_turns concurrency seed timeout_s name fail_on_error max_cost_usd max_run_turns "
    "max_run_tokens max_run_seconds max_run_cost_usd session "
    "save_sessions replay replay_missing store allow_plain_http workers engine ray_address ray_env"
).split()


class _ShellText(str):
    """A word that the shell expands: it is not quoted again."""


def join_command(words: Iterable[str]) -> str:
    """Join the words of a command, each quoted for a shell."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if isinstance(word, _ShellText):
        return word
    if "\n" not in word and sanitize_lines(word) == word:
        return shlex.quote(word)
    # A terminal shows control characters as U+FFFD, so they are spelled out, as bash reads them.
    characters = (
        character
        if character not in "\\'\n" and sanitize_lines(character) == character
        else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in word
    )
    return f"$'{''.join(characters)}'"


def build_next_command(args: Namespace, *words: str) -> str:
    """Build a command to run next on the same store."""
    *first, last = words
    if last.startswith("-"):
        # A sample id that starts with `-` would be parsed as an option.
        return join_command(["assay", *first, *_format_store(args), "--", last])
    return join_command(["assay", *words, *_format_store(args)])


def _format_store(args: Namespace) -> list[str]:
    """Return the option of the store as words; none for the default and for `$ASSAY_STORE`."""
    store = args.store
    # An empty option counts as absent.
    if not store or os.environ.get("ASSAY_STORE") == store:
        return []
    store = str(store)
    if redact_option_value(store) == store or _PLAIN_ADDRESS.fullmatch(store):
        return ["--store", store]
    holders = (name for name, value in os.environ.items() if value == store and name.isidentifier())
    # Without a value the shell stops with an error instead of using the store of this folder.
    name = next(holders, "ASSAY_STORE:?")
    return ["--store", _ShellText(f'"${{{name}}}"')]


def format_resume_hint(command: str, *, kept: str = "recorded results") -> str:
    """Return the end of a message about an interrupted command: its kept data and its resume."""
    return f"{kept} are kept. Resume with:\n  {command}"


def build_resume_command(args: Namespace, run_id: str | None) -> str:
    """Build the `assay eval` command that resumes a run with the options it was given.

    Without a run it resumes the runs of all agents and prompts, each by its configuration.
    """
    bundle = getattr(args, "bundle", None)
    named = [args.file] if bundle is None else ["--bundle", bundle]
    options = format_options(args, _EVAL_RESUME_OPTIONS, {"allow_plain_http": False})
    words = ["assay", "eval", *named, *options]
    if (shard := getattr(args, "shard", None)) is not None:
        # A shard executes what is missing whenever it is started.
        return join_command([*words, "--run", args.run, "--shard", shard])
    return join_resume_command(words, run_id)


def join_resume_command(words: Sequence[str], run_id: str | None) -> str:
    """Join the words of a command with the option that resumes `run_id`."""
    return join_command([*words, "--resume", *([] if run_id is None else [run_id])])


def format_options(
    args: Namespace, names: Iterable[str], defaults: Mapping[str, object] = MappingProxyType({})
) -> list[str]:
    """Return the given options as words of a command, without those at their default."""
    words: list[str] = []
    for name in names:
        value = getattr(args, name, None)
        if name == "store":
            words += _format_store(args)
            continue
        if value is None or value == defaults.get(name):
            continue
        flag = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            text = redact_option_value(str(each))
            # Behind a space, a value that starts with `-` would be parsed as an option.
            dashed = [f"{flag}={text}"] if text.startswith("-") else [flag, text]
            words += [flag] if each is True else dashed
    return words


def redact_option_value(text: str) -> str:
    """Replace the user, the password and the query of an address in `text` by `***`."""
    address = _ADDRESS_START.search(text)
    if address is None:
        return text
    location, mark, query = text[address.end() :].partition("?")
    if "@" in query:
        # Ambiguous: part of the query, or the host after a password that contains a `?`.
        return f"{text[: address.end()]}***"
    _, at, host = location.rpartition("@")
    return text[: address.end()] + ("***@" if at else "") + host + ("?***" if mark else "")
