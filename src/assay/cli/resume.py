"""The command that goes on with a run, in a form that may be shown."""

import re
import shlex
from argparse import Namespace

_ADDRESS_START = re.compile(r"://|^postgres[a-z+]*:/*", re.IGNORECASE)
"""Where an address begins. A store's is known by its first word, also when a slash is missing."""

_EVAL_RESUME_OPTIONS = (
    *(
        "model",
        "key_env",
        "limit",
        "repeats",
        "concurrency",
        "seed",
        "name",
        "fail_on_error",
        "max_cost_usd",
        "session",
        "save_sessions",
    ),
    "store",
)
"""Options that a resumed run is asked for again: they decide what it is, how fast, or how far."""


def build_resume_command(args: Namespace, run_id: str) -> str:
    """`assay eval` with the options it was given and `--resume`. Passwords are left out."""
    return shlex.join([*build_eval_command(args), "--resume", run_id])


def build_eval_command(args: Namespace) -> list[str]:
    """The command that asks for the same evaluation."""
    bundle = getattr(args, "bundle", None)
    named = [args.file] if bundle is None else ["--bundle", bundle]
    words = ["assay", "eval", *named]
    for name in _EVAL_RESUME_OPTIONS:
        value = getattr(args, name, None)
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, redact_option_value(str(value))]
    words += ["--allow-plain-http"] if getattr(args, "allow_plain_http", False) else []
    return words


def redact_option_value(text: str) -> str:
    """`text` with `***` for the user, the password and the query of an address in it."""
    address = _ADDRESS_START.search(text)
    if address is None:
        return text
    place, mark, query = text[address.end() :].partition("?")
    if "@" in query:
        # Part of the query, or behind a password with a question mark: nobody can tell.
        return f"{text[: address.end()]}***"
    _, at, host = place.rpartition("@")
    return text[: address.end()] + ("***@" if at else "") + host + ("?***" if mark else "")
