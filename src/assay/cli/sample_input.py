"""Samples that a command reads: from a run, a file, or the summary of a pytest session."""

import hashlib
import json
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

from assay.datasets import SampleStream, load_samples
from assay.errors import ConfigError, DatasetError
from assay.store import Run
from assay.types import Sample, check_file_target

from .exit_status import InconclusiveError
from .store_option import open_store

SAMPLE_FILE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".gz", ".zst")

# A larger .json file is a dataset: reading it whole only to look for keys would waste memory.
_MAX_SUMMARY_BYTES = 50_000_000


@dataclass
class SampleInput:
    """Samples, the name of their source, and the rows that could not be read."""

    name: str
    samples: Iterator[Sample] = field(default_factory=lambda: iter(()))
    stream: SampleStream | None = None
    unfinished: str | None = None
    """The state of a run that is not completed; None for files and completed runs."""

    files: tuple[Path, ...] = ()
    """Files that are read, and therefore must not be overwritten."""

    run: Run | None = None
    """The run that the samples come from; None for files."""

    @classmethod
    def of_run(cls, run: Run, max_samples: int | None = None) -> Self:
        """Describe a run, and read its samples when they are asked for."""
        row, unfinished = run.row(), None
        if row.status != "completed":
            unfinished = f"the run is {row.status}, with {row.totals.recorded} results"
        samples = islice(run.samples(), max_samples)
        return cls(f"run {run.id}", samples, unfinished=unfinished, run=run)

    @property
    def unread(self) -> int:
        return self.stream.skipped.count if self.stream is not None else 0

    @property
    def problems(self) -> list[str]:
        return [] if self.stream is None else [str(each) for each in self.stream.skipped.problems]


def is_sample_file(source: str) -> bool:
    """Whether `source` names a file or a dataset rather than a run."""
    looks_so = source.lower().endswith(SAMPLE_FILE_SUFFIXES) or "/" in source or os.sep in source
    return looks_so or os.path.exists(source)


def open_sample_input(
    args: Namespace, stack: ExitStack, *, max_samples: int | None = None
) -> SampleInput:
    """Open a run, a file of samples or a pytest summary. Raises before a sample is read.

    Reading raises `InconclusiveError` when a file turns out to be damaged after its first sample.
    """
    source = str(args.source)
    if not is_sample_file(source):
        run = stack.enter_context(open_store(args)).run(source)
        return SampleInput.of_run(run, max_samples)
    rows = find_summary_rows(Path(source))
    read = source if rows is None else rows
    # Repeats are allowed: the samples of a run may have been exported with their rollouts.
    stream = load_samples(read, max_samples, on_bad_row="skip").with_repeats()

    def read_all() -> Iterator[Sample]:
        is_first = True
        try:
            for sample in stream:
                is_first = False
                yield sample
        except DatasetError as error:
            if is_first:
                raise
            # Exit status 3, not 2: the samples behind the fault may be the ones that matter, so
            # half of a file must not pass for the whole.
            raise InconclusiveError(error.message, where=error.where, hint=error.hint) from error

    return SampleInput(source, read_all(), stream, files=(Path(source), Path(read)))


def refuse_to_overwrite(output: Path, inputs: Iterable[Path]) -> None:
    """Raise `ConfigError` when the output cannot be written, or is one of the files that are read.

    Called first: a wrong path must not show after the samples are judged and paid for.
    """
    check_file_target(output)
    if not output.parent.is_dir():
        raise ConfigError(f"the folder {output.parent} does not exist", hint="create it first")
    for each in inputs:
        # By identity, not by name: a link to an input would lose it just the same.
        if output.exists() and each.exists() and output.samefile(each):
            raise ConfigError(f"-o {output} is also an input file; choose another path")


def find_summary_rows(path: Path) -> Path | None:
    """Return the samples beside a pytest summary; None when `path` is not a summary."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    if os.path.getsize(path) > _MAX_SUMMARY_BYTES:
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"format", "tests", "rows", "rows_sha256"} <= data.keys():
        return None
    rows = path.with_name(Path(str(data["rows"])).name)
    if not rows.is_file():
        raise ConfigError("the samples of the summary are missing", where=str(rows))
    with rows.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != data["rows_sha256"]:
        # A later pytest session overwrote the rows; the summary would describe other samples.
        raise ConfigError(
            "the file contains other samples than the summary beside it was made from",
            where=str(rows),
            hint="name this file itself to read its samples",
        )
    return rows
