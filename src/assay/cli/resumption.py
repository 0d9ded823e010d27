"""The command that goes on with a run, in a form that may be shown."""

import re
import shlex
from argparse import Namespace

_USER = re.compile(r"//\S*@")
_QUERY = re.compile(r"\?\S*")
_REPEATED = ("model", "limit", "repeats", "concurrency", "seed", "name", "store")
"""Options that a resumed run is asked for again: they decide what it is, or how fast."""


def resume_command(args: Namespace, run_id: str) -> str:
    """`assay eval` with the options it was given and `--resume`. Passwords are left out."""
    words = ["assay", "eval", args.file]
    for name in _REPEATED:
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name}", without_secrets(str(value))]
    return shlex.join([*words, "--resume", run_id])


def without_secrets(text: str) -> str:
    """`text` with `***` for the user, the password and the query of an address in it."""
    start = text.find("://")
    if start < 0:
        return text
    return text[:start] + _QUERY.sub("?***", _USER.sub("//***@", text[start:]))
