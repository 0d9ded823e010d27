"""Atomic output files: written under a temporary name, then moved into place."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from assay.errors import ConfigError
from assay.types import check_file_target, open_private, replace_private

from .inferred_parquet import InferredColumns, InferredParquetFile
from .jsonl_file import JsonLinesFile
from .parquet_file import Columns, ParquetFile

RowFile = JsonLinesFile | InferredParquetFile | ParquetFile
"""A file that is being written: `close` completes it, `abort` closes it as it is."""


class OutputFiles:
    """The files of one export. Without `commit` they are removed at the end of the block."""

    def __init__(
        self, targets: Sequence[Path], *, columns: Columns | InferredColumns | None, force: bool
    ) -> None:
        self._columns = columns
        self._open: dict[Path, RowFile] = {}
        self._beside: dict[Path, str] = {}
        for target in targets:
            check_file_target(target)
            if target.exists() and not force:
                raise ConfigError(
                    "the file already exists",
                    where=str(target),
                    hint="pass --force to overwrite it",
                )
            if not target.parent.is_dir():
                raise ConfigError("the folder does not exist", where=str(target.parent))

    def write(self, target: Path, row: Mapping[str, Any]) -> None:
        file = self._open.get(target)
        if file is None:
            path, columns = _build_temporary_path(target), self._columns
            try:
                if columns is None or target.suffix.lower() != ".parquet":
                    file = JsonLinesFile(path)
                elif isinstance(columns, InferredColumns):
                    file = InferredParquetFile(path, columns)
                else:
                    file = ParquetFile(path, columns)
            except OSError as error:
                raise ConfigError(
                    f"the file cannot be written: {error.strerror}",
                    where=str(target),
                    hint="check that the folder is writable",
                ) from None
            self._open[target] = file
        file.write(row)

    def add_text(self, target: Path, text: str) -> None:
        """Add a text file that is written with the others on `commit`."""
        self._beside[target] = text

    def commit(self) -> None:
        """Complete every file and move it into place."""
        # Complete all before the first is moved: a full disk must not leave half of the files.
        for file in self._open.values():
            file.close()
        for target, text in self._beside.items():
            with open_private(_build_temporary_path(target)) as text_file:
                text_file.write(text)
        for target in [*self._open, *self._beside]:
            replace_private(_build_temporary_path(target), target)

    def count_changes(self) -> Counter[str]:
        """Count the objects that inferred columns changed; complete after `commit`."""
        files = (file for file in self._open.values() if isinstance(file, InferredParquetFile))
        return sum((file.changed for file in files), Counter())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._open.values():
            # An error while closing must not hide the error that ended the block.
            with suppress(Exception):
                file.abort()
        for target in [*self._open, *self._beside]:
            _build_temporary_path(target).unlink(missing_ok=True)


def _build_temporary_path(target: Path) -> Path:
    # The process id keeps two exports to the same target apart.
    return target.with_name(f".{target.name}.{os.getpid()}.unfinished")
