"""The dataset rows of a bundle, by the test that used them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.datasets import load_samples
from assay.types import Sample


@dataclass(frozen=True)
class BundledRows:
    """The rows of some tests, each once: endpoints of one test share its rows."""

    file: Path
    tests: frozenset[str]

    def __iter__(self) -> Iterator[Sample]:
        seen: set[str] = set()
        for sample in load_samples(self.file, adapter=Sample.model_validate).with_repeats():
            extra = sample.__pydantic_extra__ or {}
            # `test` marks results of the old session; new results get a mark of their own.
            if extra.pop("test", None) in self.tests and sample.id not in seen:
                seen.add(sample.id)
                yield sample
