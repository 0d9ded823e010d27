"""JSON lines: one object on each line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import WireError
from assay.types import open_private


def encode_json_line(row: Mapping[str, Any]) -> str:
    """The row as one line of JSON, without its end. Raises `WireError` for any other value."""
    try:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"the row cannot be written as JSON: {error}") from None
    return line


class JsonLinesFile:
    """One JSON object on each line."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path)

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(f"{encode_json_line(row)}\n")

    def close(self) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()
