"""The first repeated name, found in one pass."""

from collections.abc import Iterator

import pytest

from assay.datasets.repeated_names import find_duplicate


@pytest.mark.parametrize(
    ("names", "found"),
    [([], None), (["a", "b"], None), (["a", "b", "b", "a"], "b"), (["a", "A", "a"], "a")],
)
def test_the_first_name_that_was_there_before_is_found(names: list[str], found: str | None) -> None:
    assert find_duplicate(names) == found


def test_each_name_is_looked_at_once_and_none_behind_the_duplicate() -> None:
    looked_at: list[str] = []

    def names() -> Iterator[str]:
        for name in ["a", "b", "a", "c"]:
            looked_at.append(name)
            yield name

    assert find_duplicate(names()) == "a"
    assert looked_at == ["a", "b", "a"]


def test_very_many_names_are_no_trouble() -> None:
    assert find_duplicate(str(number) for number in range(300_000)) is None
