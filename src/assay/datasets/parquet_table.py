"""Parquet files, a small batch of rows at a time."""

from collections.abc import Iterator
from typing import Any

from assay.errors import BadRow, DatasetError

from .json_text import find_duplicate
from .rows import FileRows, RowOutcome, check_row

# Small: a batch is in memory twice, as Arrow data and as Python objects.
_BATCH_ROWS = 64


class ParquetTable(FileRows):
    """The rows of one file, numbered from 0."""

    by_line = False
    is_text = False
    has_typed_values = True
    """Whether there may be values that JSON does not have, such as dates."""

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        # Not above: pyarrow is an extra, and its import sets environment variables.
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
            # `to_pylist` makes dicts, which would silently keep the last of two equal columns.
            repeated = find_duplicate(file.schema_arrow.names)
            if repeated is not None:
                raise DatasetError(
                    f"two columns are named {repeated!r}",
                    where=str(self.path),
                    hint="rename one of them",
                )
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                # Measured in Arrow: Python objects are several times as large.
                small = batch.nbytes <= self.limits.max_row_bytes
                pieces = [batch] if small else (batch.slice(n, 1) for n in range(batch.num_rows))
                for piece in pieces:
                    yield from self._read_piece(piece, position)
                    position += piece.num_rows

    def _read_piece(self, batch: Any, position: int) -> Iterator[tuple[int, RowOutcome]]:
        if batch.nbytes > self.limits.max_row_bytes:
            problem = f"{batch.nbytes} bytes, over the limit of {self.limits.max_row_bytes}"
            hint = "raise ReadLimits(max_row_bytes=…)"
            where = self.where(position)
            yield position, BadRow(f"the row is {problem}", where=where, hint=hint)
            return
        try:
            rows = batch.to_pylist()
        # Python has no years over 9999, and no text that is not UTF-8.
        except (ArithmeticError, ValueError, NotImplementedError) as error:
            if batch.num_rows > 1:
                for number in range(batch.num_rows):
                    yield from self._read_piece(batch.slice(number, 1), position + number)
                return
            why = " ".join(str(error).split())
            yield (
                position,
                BadRow(
                    f"the row has a value that cannot be read: {why}",
                    where=self.where(position),
                    hint="leave its column out of the file, or write it as text",
                ),
            )
            return
        for number, row in enumerate(rows, start=position):
            where = self.where(number)
            yield number, check_row(row, where=where, max_depth=self.limits.max_depth)
