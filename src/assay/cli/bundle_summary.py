"""The summary of a pytest session as runs of a bundle."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay.datasets import BundledRun, load_samples
from assay.types import Sample


class _SummaryModel(BaseModel):
    # Newer plugins may write further fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class SummaryTest(_SummaryModel):
    """One test of a summary."""

    test: str
    nodeid: str = ""
    file: str
    run: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    config_fingerprint: str | None = None
    dataset: str | None = None
    dataset_fingerprint: str | None = None


class PytestSummary(_SummaryModel):
    """The fields of a summary that a bundle uses."""

    created: str
    tests: tuple[SummaryTest, ...]
    code: dict[str, str] = Field(default_factory=dict)
    """Files of the tests and of their imports, with the sha256 of each."""


def read_summary_runs(
    summary: PytestSummary, rows: Path
) -> Iterator[tuple[BundledRun, Iterator[Sample]]]:
    """Yield each test with its samples, which are adjacent in the file."""
    samples = _SamplesByTest(rows)
    for number, test in enumerate(summary.tests, start=1):
        repeats = test.config.get("repeats")
        yield (
            BundledRun(
                id=test.run or f"test-{number}",
                name=test.test,
                status="completed",
                config=test.config,
                config_fingerprint=test.config_fingerprint,
                dataset=None if test.dataset is None else strip_dataset_folder(test.dataset),
                dataset_fingerprint=test.dataset_fingerprint,
                repeats=repeats if isinstance(repeats, int) and repeats > 0 else 1,
                created_at=summary.created,
                test=test.test,
                results=0,
                rows=0,
            ),
            samples.of(test.test),
        )


class _SamplesByTest:
    """Reads the samples of a file test by test, in one pass."""

    def __init__(self, rows: Path) -> None:
        self._samples = iter(load_samples(rows).with_repeats())
        self._next = next(self._samples, None)

    def of(self, test: str) -> Iterator[Sample]:
        # One sample is read ahead to find where the next test starts.
        while self._next is not None and (self._next.__pydantic_extra__ or {}).get("test") == test:
            yield self._next
            self._next = next(self._samples, None)


def strip_dataset_folder(dataset: str) -> str:
    """Return the name of a dataset without the folders of this machine."""
    return os.path.basename(dataset) if os.path.isabs(dataset) else dataset
