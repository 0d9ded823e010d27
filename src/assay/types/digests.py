"""SHA-256 digests of code, files and plain values."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import CodeType


def find_code(function: object) -> CodeType | None:
    """The code that runs when an object is called; None where that is not Python's."""
    for each in (getattr(function, "__func__", function), vars(type(function)).get("__call__")):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def compute_code_sha256(function: Callable[..., object]) -> str | None:
    """The digest of the file that holds a function; None where there is none to be read.

    The whole file: a metric is also the helpers beside it. The file is that of the code which is
    called: a function that says of itself that it wraps another is not digested as the other.
    """
    code = find_code(function)
    try:
        return None if code is None else compute_file_sha256(Path(code.co_filename))
    except (OSError, TypeError, ValueError):
        return None


def compute_stable_sha256(value: object) -> str:
    """The digest of plain values, whatever numbers are in them."""
    return compute_sha256(json.dumps(value, sort_keys=True, default=str).encode())


def compute_file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
