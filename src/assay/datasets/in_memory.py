"""Rows that are already in this process: a list, a generator, a loaded dataset."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from assay.errors import BadRow, DatasetError
from assay.types import Sample

from .read_limits import ReadLimits
from .rows import RowOutcome, check_row


@dataclass
class MemoryRows:
    """Items of an iterable, numbered from 0. An iterator can be read only once."""

    items: Iterable[Any]
    limits: ReadLimits
    _consumed: bool = field(default=False, init=False)

    @property
    def count(self) -> int | None:
        """The number of items, or None if it is unknown without reading them."""
        return len(self.items) if isinstance(self.items, Sized) else None

    def where(self, position: int) -> str:
        return f"item {position}"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        iterator = iter(self.items)
        # An iterator is its own iterator: a second pass would silently be empty.
        if iterator is self.items:
            if self._consumed:
                raise DatasetError(
                    "the iterator was already read and cannot be read again",
                    hint="pass a list, or a path, or call load_samples on a new iterator",
                )
            self._consumed = True
        for position, item in enumerate(iterator):
            where = self.where(position)
            if isinstance(item, Sample):
                yield position, item
            elif isinstance(item, Mapping):
                yield position, check_row(dict(item), where=where, max_depth=self.limits.max_depth)
            else:
                problem = f"the item is a {type(item).__name__}, not a dict or a Sample"
                yield position, BadRow(problem, where=where)
