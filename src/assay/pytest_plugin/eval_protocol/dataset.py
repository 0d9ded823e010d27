"""The rows of an evaluation, from `input_dataset`, `input_messages` or `input_rows`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.datasets import FetchRules, fetch_golden, load_samples
from assay.errors import DatasetError
from assay.types import Message, Sample

RowsAdapter = Callable[[list[dict[str, Any]]], list[Sample]]
_URLS = ("http://", "https://")


def default_dataset_adapter(rows: list[dict[str, Any]]) -> list[Sample]:
    """Convert rows that have the fields of an `EvaluationRow`."""
    return [Sample(**row) for row in rows]


@dataclass
class DatasetRows:
    """Samples that are built again in each pass, so that runs do not share changes to a row."""

    load: Callable[[int | None], list[Sample]]
    """Returns at most this many samples; all of them for None."""

    max_rows: int | None = None
    row_ids: frozenset[str] | None = None
    """Keep only these, before `preprocess`, which may make rows with other ids."""

    preprocess: Callable[[list[Sample]], list[Sample]] | None = None

    def __iter__(self) -> Iterator[Sample]:
        rows = [_use_row_id(row) for row in self.load(self.max_rows)]
        if self.row_ids is not None:
            rows = [row for row in rows if row.id in self.row_ids]
        if self.preprocess is not None:
            rows = _check_sample_list(self.preprocess(rows), "preprocess_fn")
        seen = Counter[str]()
        for row in rows:
            # As in eval-protocol, those of the evaluation replace those of the row.
            row.metadata.pop("completion_params", None)
            _use_row_id(row)
            seen[row.id] += 1
            # Rows that are split from one share its id there. Others may not repeat it.
            if self.preprocess is not None and seen[row.id] > 1:
                row.id = f"{row.id}-{seen[row.id]}"
            yield row


def _use_row_id(row: Sample) -> Sample:
    if (given := row.metadata.get("row_id")) is not None:
        row.id = str(given)
    return row


def load_messages(
    conversations: Sequence[Sequence[Message | dict[str, Any]]], most: int | None
) -> list[Sample]:
    """Build a sample of each conversation, at most so many."""
    return [Sample(prompt=list(messages)) for messages in conversations[:most]]


def copy_rows(rows: Sequence[Sample], most: int | None) -> list[Sample]:
    """Copy the rows, at most so many."""
    return [row.model_copy(deep=True) for row in rows[:most]]


@dataclass
class AdaptedFiles:
    """The rows of all files or URLs, given to the adapter in one call."""

    places: Sequence[str]
    adapter: RowsAdapter
    folder: Path
    """The folder of the test file, the fallback for relative paths."""

    _cached_rows: list[dict[str, Any]] | None = field(default=None, init=False)

    def __call__(self, most: int | None) -> list[Sample]:
        # Fetched and parsed once: each repeat and endpoint asks for the rows again.
        if self._cached_rows is None:
            self._cached_rows = [row for place in self.places for row in self._read_rows(place)]
        rows = [dict(row) for row in self._cached_rows[:most]]
        return _check_sample_list(self.adapter(rows), "dataset_adapter")

    def _read_rows(self, place: str) -> list[dict[str, Any]]:
        if not place.startswith(_URLS):
            return _read_file(find_beside(place, self.folder))
        with TemporaryDirectory() as cache:
            # The address comes from test code, which could open any private address itself.
            rules = FetchRules(allow_private=True)
            fetched = fetch_golden(place, root=None, cache=Path(cache), rules=rules)
            return _read_file(fetched.path)


def find_beside(path: str, folder: Path) -> Path:
    """Return the path, or the one in the test's folder where only that exists."""
    found = Path(path)
    beside = folder / path
    return beside if not found.exists() and beside.exists() else found


def _read_file(path: Path) -> list[dict[str, Any]]:
    stream = load_samples(path, adapter=lambda row: Sample(input=row)).with_repeats()
    return [sample.input for sample in stream]


def _check_sample_list(rows: object, where: str) -> list[Sample]:
    if not isinstance(rows, list) or not all(isinstance(row, Sample) for row in rows):
        raise DatasetError(f"`{where}` did not return a list of EvaluationRow", where=where)
    return rows
