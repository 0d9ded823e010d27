"""Rows in memory: lists, generators, and things that are no rows."""

from collections.abc import Iterator
from typing import Any

import pytest

from assay.datasets import ReadLimits
from assay.datasets.in_memory import MemoryRows
from assay.errors import BadRow, DatasetError
from assay.types import Sample


def test_dicts_become_copies_and_samples_stay() -> None:
    row, sample = {"prompt": "a"}, Sample(prompt="b")

    found = list(MemoryRows([row, sample], ReadLimits()))

    assert found == [(0, row), (1, sample)]
    assert found[0][1] is not row
    assert found[1][1] is sample


def test_a_list_is_read_as_often_as_asked() -> None:
    rows = MemoryRows([{"prompt": "a"}], ReadLimits())

    assert list(rows) == list(rows)


def test_a_generator_is_refused_the_second_time() -> None:
    def generated() -> Iterator[dict[str, Any]]:
        yield {"prompt": "a"}

    rows = MemoryRows(generated(), ReadLimits())
    list(rows)

    with pytest.raises(DatasetError, match="was already read and cannot be read again"):
        list(rows)


@pytest.mark.parametrize("item", ["text", 3, None, ["prompt"]])
def test_an_item_that_is_no_row_is_a_bad_row(item: object) -> None:
    ((_, found),) = MemoryRows([item], ReadLimits())

    assert isinstance(found, BadRow)
    assert str(found) == f"item 0: the item is a {type(item).__name__}, not a dict or a Sample"


def test_nan_is_refused_as_it_is_in_a_file() -> None:
    ((_, found),) = MemoryRows([{"prompt": "a", "answer": float("nan")}], ReadLimits())

    assert isinstance(found, BadRow)
    assert found.where == "item 0"
