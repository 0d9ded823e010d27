"""The command that resumes a run, and the hint that shows it. Passwords are redacted."""

import re
import shlex
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

# The start of an address. A store URL is known by its scheme, also when a slash is missing:
# a mistyped URL still contains the password.
_ADDRESS_START = re.compile(r"://|^postgres[a-z+]*:/*", re.IGNORECASE)

# Options that define the run, its speed or its limits. Those of the display are not repeated.
_EVAL_RESUME_OPTIONS = (
    "agent workspace setup check prompt scorer dataset split judge model key_env max_samples "
    "repeats max_turns concurrency seed timeout_s name fail_on_error max_cost_usd max_run_turns "
    "max_run_tokens max_run_seconds max_run_cost_usd session "
    "save_sessions replay replay_missing store allow_plain_http workers engine ray_address ray_env"
).split()


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
        return shlex.join([*words, "--run", args.run, "--shard", shard])
    return join_resume_command(words, run_id)


def join_resume_command(words: Sequence[str], run_id: str | None) -> str:
    """Join the words of a command, quoted for a shell, with the option that resumes `run_id`."""
    return shlex.join([*words, "--resume", *([] if run_id is None else [run_id])])


def format_options(
    args: Namespace, names: Iterable[str], defaults: Mapping[str, object] = MappingProxyType({})
) -> list[str]:
    """Return the given options as words of a command, without those at their default."""
    words: list[str] = []
    for name in names:
        value = getattr(args, name, None)
        if value is None or value == defaults.get(name):
            continue
        flag = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [flag, redact_option_value(str(each))]
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
