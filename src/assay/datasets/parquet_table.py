"""Parquet files, a small batch of rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from assay.errors import BadRow, DatasetError

from .json_text import find_duplicate
from .read_limits import ReadLimits
from .rows import RowOutcome, check_row

# Small: a batch is in memory twice, as Arrow data and as Python objects.
_BATCH_ROWS = 64


@dataclass(frozen=True)
class ParquetTable:
    """The rows of one file, numbered from 0."""

    path: Path
    limits: ReadLimits

    def where(self, position: int) -> str:
        return f"{self.path}[{position}]"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        import pyarrow

        try:
            yield from self._read_rows()
        except (pyarrow.ArrowException, OSError) as error:
            raise DatasetError(
                f"the file is not valid Parquet: {error}",
                where=str(self.path),
                hint="copy or download it again",
            ) from error

    def _read_rows(self) -> Iterator[tuple[int, RowOutcome]]:
        from pyarrow.parquet import ParquetFile

        position = 0
        with ParquetFile(self.path) as file:
            self._refuse_repeated_columns(file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                # Measured in Arrow: Python objects are several times as large.
                if batch.nbytes <= self.limits.max_row_bytes:
                    found = map(self._check_row, count(position), batch.to_pylist())
                else:
                    single = (batch.slice(offset, 1) for offset in range(batch.num_rows))
                    found = map(self._check_large_row, count(position), single)
                yield from zip(count(position), found)
                position += batch.num_rows

    def _check_row(self, position: int, row: dict[str, Any]) -> RowOutcome:
        return check_row(row, where=self.where(position), max_depth=self.limits.max_depth)

    def _check_large_row(self, position: int, batch: Any) -> RowOutcome:
        if batch.nbytes > self.limits.max_row_bytes:
            return BadRow(
                f"the row is {batch.nbytes} bytes, over the limit of {self.limits.max_row_bytes}",
                where=self.where(position),
                hint="raise ReadLimits(max_row_bytes=…)",
            )
        return self._check_row(position, batch.to_pylist()[0])

    def _refuse_repeated_columns(self, names: list[str]) -> None:
        # `to_pylist` makes dicts, which would silently keep the last of two equal columns.
        repeated = find_duplicate(names)
        if repeated is not None:
            raise DatasetError(
                f"two columns are named {repeated!r}",
                where=str(self.path),
                hint="rename one of them",
            )
