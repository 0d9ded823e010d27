"""Excerpts: escaped, short, and honest about what was cut."""

import pytest

from assay.scorers.checks.conversation import Passage
from assay.scorers.checks.findings import cut_excerpt, describe_beginning, mark_unscored


@pytest.mark.parametrize(
    ("text", "start", "length", "expected"),
    [
        ("short", 0, 5, "'short'"),
        ("a\x1b[2Jb", 0, 3, r"'a\x1b[2Jb'"),
        ("x" * 100 + "HIT" + "y" * 100, 100, 3, f"…'{'x' * 30}HIT{'y' * 30}'…"),
    ],
)
def test_an_excerpt_shows_what_was_found(text: str, start: int, length: int, expected: str) -> None:
    assert cut_excerpt(text, start, length) == expected


def test_an_excerpt_stays_short() -> None:
    assert len(cut_excerpt("\x00" * 10_000, 5000, 10_000)) < 500


def test_the_beginning_of_a_passage_says_where_it_is() -> None:
    assert (
        describe_beginning(Passage("hello", ((0, 2),), "response")) == "response in turn 2: 'hello'"
    )
    assert describe_beginning(Passage("", ((0, 2),), "response")) == "response in turn 2: empty"


def test_what_was_not_judged_neither_passed_nor_failed() -> None:
    assert mark_unscored("why").passed is None
