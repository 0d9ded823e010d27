"""`SeenIds`: the same answers in memory and on disk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.datasets.row_ids import SeenIds


@pytest.mark.parametrize("in_memory", [0, 1, 2, 1000])
def test_a_repeated_id_is_answered_with_the_first_position(in_memory: int) -> None:
    with SeenIds(in_memory=in_memory) as seen:
        assert [seen.claim(name, at) for at, name in enumerate("abcab")] == [None] * 3 + [0, 1]


@pytest.mark.parametrize("in_memory", [0, 2, 1000])
def test_equal_rows_are_numbered_in_order(in_memory: int) -> None:
    with SeenIds(in_memory=in_memory) as seen:
        assert [seen.number("x", at) for at in range(3)] == ["x", "x-2", "x-3"]


def test_a_number_that_the_data_uses_itself_is_passed_over() -> None:
    with SeenIds() as seen:
        seen.claim("x-2", 0)
        seen.claim("x", 1)

        assert seen.number("x", 2) == "x-3"
        assert seen.claim("x-3", 3) == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("a b a-2 b-2 a-3".split())), max_size=12))
def test_where_the_ids_are_kept_changes_nothing(asked: list[tuple[bool, str]]) -> None:
    answers = []
    for in_memory in (1000, 3, 0):
        with SeenIds(in_memory=in_memory) as seen:
            answers.append(
                [
                    seen.claim(name, at) if given_id else seen.number(name, at)
                    for at, (given_id, name) in enumerate(asked)
                ]
            )

    assert answers[0] == answers[1] == answers[2]
