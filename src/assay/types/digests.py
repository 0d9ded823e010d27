"""SHA-256 digests of code, files and plain values."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import CodeType


def find_code(function: object) -> CodeType | None:
    """Return the code that runs when an object is called; None for non-Python callables."""
    for each in (getattr(function, "__func__", function), vars(type(function)).get("__call__")):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def compute_code_sha256(function: Callable[..., object]) -> str | None:
    """Return the digest of the file that defines a function; None when it cannot be read."""
    # The whole file, because a metric includes its helpers. `__wrapped__` is ignored, because a
    # decorator may claim to wrap a function that it never calls.
    code = find_code(function)
    try:
        return None if code is None else compute_file_sha256(Path(code.co_filename))
    except (OSError, TypeError, ValueError):
        return None


def compute_stable_sha256(value: object) -> str:
    """Return the digest of plain values, including non-finite numbers."""
    return compute_sha256(json.dumps(value, sort_keys=True, default=str).encode())


def compute_file_sha256(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_sha256(data: bytes) -> str:
    """Return the hex digest of bytes."""
    return hashlib.sha256(data).hexdigest()
