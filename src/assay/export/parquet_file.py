"""Write Parquet in batches of rows, with columns that are known beforehand.

Columns that pyarrow guesses would differ from one batch to the next, and pad objects with each
other's keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import MissingExtra, WireError
from assay.types import create_private

if TYPE_CHECKING:
    import pyarrow

_ROWS_AT_ONCE = 500

Columns = Mapping[str, Any]
"""A type for each column: `str`, `int`, `float`, `bool`, `[type]` or `{"key": type}`."""


class ParquetFile:
    """A file that is being written, with some hundred rows in memory."""

    def __init__(self, path: Path, columns: Columns, *, rows_at_once: int = _ROWS_AT_ONCE) -> None:
        self._schema = build_parquet_schema(columns)
        # Each batch becomes a row group: larger ones compress better, and take more memory.
        self._rows_at_once = min(rows_at_once, _ROWS_AT_ONCE)
        self._rows: list[Mapping[str, Any]] = []
        from pyarrow.parquet import ParquetWriter

        create_private(path)
        self._writer = ParquetWriter(path, self._schema)

    def write(self, row: Mapping[str, Any]) -> None:
        import pyarrow

        try:
            # Convert each row now, so that the error names the row and not its batch.
            pyarrow.RecordBatch.from_pylist([dict(row)], schema=self._schema)
        except (pyarrow.ArrowException, TypeError, OverflowError) as error:
            raise WireError(f"the row does not fit the columns: {error}") from None
        self._rows.append(row)
        if len(self._rows) >= self._rows_at_once:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def abort(self) -> None:
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow

        self._writer.write_batch(pyarrow.RecordBatch.from_pylist(self._rows, schema=self._schema))
        self._rows = []


def build_parquet_schema(columns: Columns) -> "pyarrow.Schema":
    """Build the Arrow schema of these columns. Raises `MissingExtra` without pyarrow."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra.build("parquet", by="writing Parquet", package="pyarrow") from None
    return pyarrow.schema([(name, _to_arrow_type(kind)) for name, kind in columns.items()])


def _to_arrow_type(kind: Any) -> Any:
    import pyarrow

    if isinstance(kind, list):
        return pyarrow.list_(_to_arrow_type(kind[0]))
    if isinstance(kind, dict):
        return pyarrow.struct([(name, _to_arrow_type(inner)) for name, inner in kind.items()])
    plain = {str: pyarrow.string, int: pyarrow.int64, float: pyarrow.float64, bool: pyarrow.bool_}
    return plain[kind]()
