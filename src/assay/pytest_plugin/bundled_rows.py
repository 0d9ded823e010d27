"""The dataset rows of a bundle, each for the test that used it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.datasets import load_samples
from assay.types import Sample


@dataclass(frozen=True)
class BundledRows:
    """The rows of some tests, without repetitions: endpoints of one test share its rows."""

    file: Path
    tests: frozenset[str]

    def __iter__(self) -> Iterator[Sample]:
        seen: set[str] = set()
        for sample in load_samples(self.file, adapter=Sample.model_validate).with_repeats():
            extra = sample.__pydantic_extra__ or {}
            # The row belongs to the test: the new results get their own mark.
            if extra.pop("test", None) in self.tests and sample.id not in seen:
                seen.add(sample.id)
                yield sample
