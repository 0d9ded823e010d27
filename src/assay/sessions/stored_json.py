"""Read JSON files of other programs, up to a size limit. Raises `BadRow`."""

import json
import stat
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from assay.errors import BadRow
from assay.formats import make_storable
from assay.types import refuse_json_constant

LARGEST_FILE = 256 * 1024 * 1024
"""Limit in bytes for one JSON file or table cell. Attached images make some of them large."""


def parse_json(text: str | bytes, *, where: str) -> Any:
    """Parse a JSON value, or raise `BadRow`. Lone surrogates, as in cut output, become U+FFFD."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        pass
    # pydantic_core is faster but rejects lone surrogates, so its errors are checked again here.
    try:
        return make_storable(json.loads(text, parse_constant=refuse_json_constant))
    except (ValueError, RecursionError) as error:
        raise BadRow(f"the text is not JSON: {error}", where=where) from None


def parse_stored_object(text: str | bytes, *, where: str) -> dict[str, Any]:
    """Parse a JSON object, or raise `BadRow`."""
    value = parse_json(text, where=where)
    if not isinstance(value, dict):
        raise BadRow(f"the JSON value is a {type(value).__name__}, not an object", where=where)
    return value


def read_stored_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file, or raise `BadRow`."""
    return parse_stored_object(read_stored_bytes(path), where=str(path))


def read_stored_bytes(path: Path) -> bytes:
    """Read a file, or raise `BadRow` if it cannot be read or exceeds the limit."""
    try:
        # Opening a named pipe would block until a process writes to it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadRow("the path is not a regular file", where=str(path))
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadRow(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    if len(data) > LARGEST_FILE:
        raise BadRow(f"the file exceeds {LARGEST_FILE} bytes", where=str(path))
    return data
