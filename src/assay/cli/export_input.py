"""What `assay export` reads: a run, a file of samples, or the summary of a pytest session."""

import hashlib
import json
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay.datasets import SampleStream, load_samples
from assay.errors import ConfigError, DatasetError
from assay.types import Sample

from .check import is_sample_file
from .exit_status import InconclusiveError
from .store_option import open_store

_LARGEST_SUMMARY = 50_000_000


@dataclass
class ExportInput:
    """Samples, what they are samples of, and what of it could not be read."""

    name: str
    samples: Iterator[Sample]
    stream: SampleStream | None = None
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    """What is read, and must not be written."""

    @property
    def unread(self) -> int:
        return self.stream.skipped.count if self.stream is not None else 0

    @property
    def problems(self) -> list[str]:
        return [] if self.stream is None else [str(each) for each in self.stream.skipped.problems]


def open_export_input(args: Namespace, stack: ExitStack) -> ExportInput:
    """What was asked for. What is not there is refused before a sample is read."""
    source = str(args.source)
    if not is_sample_file(source):
        run = stack.enter_context(open_store(args)).run(source)
        row = run.row()
        unfinished = f"the run is {row.status}, with {row.totals.recorded} results"
        notes = () if row.status == "completed" else (unfinished,)
        return ExportInput(f"run {run.id}", run.samples(), notes=notes)
    rows = find_summary_rows(Path(source))
    read = Path(source) if rows is None else rows
    stream = load_samples(source if rows is None else rows, on_bad_row="skip").with_repeats()
    return ExportInput(source, _read_whole_stream(stream), stream, files=(Path(source), read))


def _read_whole_stream(stream: SampleStream) -> Iterator[Sample]:
    read = 0
    try:
        for sample in stream:
            read += 1
            yield sample
    except DatasetError as error:
        if not read:
            raise
        # Half of a file would be taken for the whole of it.
        raise InconclusiveError(error.message, where=error.where, hint=error.hint) from error


def find_summary_rows(path: Path) -> Path | None:
    """The samples beside a summary; None when `path` is something else."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    if os.path.getsize(path) > _LARGEST_SUMMARY:
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"format", "tests", "rows", "rows_sha256"} <= data.keys():
        return None
    rows = path.with_name(Path(str(data["rows"])).name)
    if not rows.is_file():
        raise ConfigError("the samples of the summary are not beside it", where=str(rows))
    if _compute_sha256(rows) != data["rows_sha256"]:
        raise ConfigError(
            "holds other samples than the summary beside it was made from",
            where=str(rows),
            hint="name this file itself to export what is in it",
        )
    return rows


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
