"""Several tests at once: Holm's p-values, and forty unchanged tests that stay quiet."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.multiplicity import adjust_p_values
from simulated import chances, is_worse, paired, scores

p_values = st.lists(st.floats(0, 1), max_size=12)


def test_holm_by_hand() -> None:
    assert adjust_p_values([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_p_values([0.5, 0.9]) == [1.0, 1.0]
    assert adjust_p_values([0.2]) == [0.2]
    assert adjust_p_values([]) == []


@given(p_values)
def test_adjusting_never_makes_smaller_and_keeps_the_order(given_p: list[float]) -> None:
    adjusted = adjust_p_values(given_p)

    assert all(new >= old for new, old in zip(adjusted, given_p, strict=True))
    by_old = [new for _, new in sorted(zip(given_p, adjusted, strict=True))]
    assert by_old == sorted(by_old)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12))
def test_knowing_what_tests_could_show_never_costs_anything(
    pairs: list[tuple[float, float]],
) -> None:
    given_p = [max(pair) for pair in pairs]
    smallest = [min(pair) for pair in pairs]

    with_smallest = adjust_p_values(given_p, smallest=smallest)

    for better, holm in zip(with_smallest, adjust_p_values(given_p), strict=True):
        assert better <= holm


def test_tests_that_could_show_nothing_do_not_hide_one_that_does() -> None:
    given_p = [2 / 2**7] + [1.0] * 39

    assert adjust_p_values(given_p)[0] > 0.5
    assert adjust_p_values(given_p, smallest=[2 / 2**7] + [0.5] * 39)[0] == pytest.approx(2 / 2**7)


def test_forty_unchanged_tests_fail_a_session_at_most_once_in_twenty() -> None:
    generator = numpy.random.default_rng(9)
    alone = together = 0
    for _ in range(60):
        found = []
        for _ in range(40):
            likely = chances(generator, 60, 0.8, mixed=True)
            found.append(paired(scores(generator, likely, 1), scores(generator, likely, 1)))
        given_p = [each.test(0).p_value or 0.0 for each in found]
        smallest = [min(1.0, 2 * 0.5**each.movable) for each in found]
        adjusted = adjust_p_values(given_p, smallest=smallest)
        alone += any(is_worse(each) for each in found)
        together += any(
            p_value <= 0.05 and sum(each.differences) < 0
            for each, p_value in zip(found, adjusted, strict=True)
        )

    assert together / 60 <= 0.05
    assert alone / 60 >= 0.2
