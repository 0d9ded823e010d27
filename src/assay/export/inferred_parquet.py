"""Parquet with inferred columns: rows are spooled to disk until all have been seen."""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import WireError
from assay.types import create_private

from .inferred_columns import (
    MAX_FIELDS,
    Shape,
    find_changes,
    fit_to_shape,
    infer_shape,
    select_values,
)
from .jsonl_file import encode_json_line
from .parquet_file import ParquetFile, build_parquet_schema

# Values (rows times columns) of one record batch, which bounds the memory of wide files.
_VALUES_AT_ONCE = 100_000


@dataclass(frozen=True)
class InferredColumns:
    """Columns whose types are inferred from the rows."""

    exact: tuple[str, ...]
    """Paths of the objects whose changes are counted, such as `tools[].function`."""

    hint: str
    """Advice for the report when such an object was changed."""


class InferredParquetFile:
    """A file being written, in memory that does not grow with the number of rows."""

    def __init__(self, path: Path, columns: InferredColumns) -> None:
        # Without pyarrow this raises now, not after the last row.
        build_parquet_schema({})
        create_private(path)
        self.changed: Counter[str] = Counter()
        """Objects that changed in the columns, by path and change."""

        self._path = path
        self._columns = columns
        # Closed by `close` and `abort`.
        self._rows = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115
        self._shape = Shape("object")

    def write(self, row: Mapping[str, Any]) -> None:
        # Widen a copy: a refused row must leave the columns as they are.
        line, shape = encode_json_line(row), infer_shape(row)
        widened = Shape("object")
        widened.add(self._shape)
        widened.add(shape)
        if widened.count_fields() > MAX_FIELDS:
            raise WireError(f"the row's keys exceed the limit of {MAX_FIELDS} columns in the file")
        self._shape = widened
        self._rows.write(f"{line}\n")

    def close(self) -> None:
        """Write the rows, now that their types are known."""
        shape = self._shape
        # Drop columns of nulls and empty lists: some chat templates announce tools when the column
        # exists.
        shape.fields = {
            key: each
            for key, each in shape.fields.items()
            if each.kind != "null" and (each.kind != "list" or each.items is not None)
        }
        rows_at_once = max(1, _VALUES_AT_ONCE // max(1, shape.count_fields()))
        self._path.unlink()
        file = ParquetFile(self._path, shape.build_column(), rows_at_once=rows_at_once)
        self._rows.seek(0)
        try:
            for line in self._rows:
                row = json.loads(line)
                written = fit_to_shape(row, shape)
                for path in self._columns.exact:
                    pairs = zip(select_values(row, path), select_values(written, path), strict=True)
                    for before, after in pairs:
                        changes = find_changes(before, after)
                        self.changed.update(f"{path}: {change}" for change in changes)
                file.write(written)
        except BaseException:
            file.abort()
            raise
        file.close()
        self._rows.close()

    def abort(self) -> None:
        self._rows.close()
