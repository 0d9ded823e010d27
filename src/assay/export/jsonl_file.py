"""Write JSON lines: one object on each line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import WireError
from assay.types import open_private


def encode_json_line(row: Mapping[str, Any]) -> str:
    """Encode a row as one line of JSON. Raises `WireError` for values that are not JSON."""
    try:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line.encode()  # raises for lone surrogates
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"the row cannot be written as JSON: {error}") from None
    return line


class JsonLinesFile:
    """A file of JSON lines that is being written."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path)

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(f"{encode_json_line(row)}\n")

    def close(self) -> None:
        self._file.close()

    abort = close
