"""pass@k and pass^k: unbiased, honest about k, and clear about what was left out."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.stats import pass_at_k, pass_hat_k
from assay.stats.repeats import RepeatCounts


def test_one_success_in_four() -> None:
    scores = [[1.0, 0.0, 0.0, 0.0]]

    assert pass_at_k(scores, 1).value == 0.25
    assert pass_at_k(scores, 2).value == 0.5
    assert pass_at_k(scores, 4).value == 1.0
    assert pass_hat_k(scores, 1).value == 0.25
    assert pass_hat_k(scores, 2).value == 0.0


def test_three_successes_in_four() -> None:
    scores = [[1.0, 1.0, 1.0, 0.0]]

    assert pass_at_k(scores, 2).value == 1.0
    assert pass_hat_k(scores, 2).value == 0.5
    assert pass_hat_k(scores, 4).value == 0.0


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_the_rates_are_those_of_every_choice_of_k(passed: list[bool], k: int) -> None:
    choices = list(combinations(passed, k))
    scores = [[float(one) for one in passed]]

    at_least_one, all_of_them = pass_at_k(scores, k).value, pass_hat_k(scores, k).value

    if not choices:
        assert (at_least_one, all_of_them) == (None, None)
    else:
        assert at_least_one == pytest.approx(sum(map(any, choices)) / len(choices))
        assert all_of_them == pytest.approx(sum(map(all, choices)) / len(choices))


def test_samples_are_averaged_with_equal_weight() -> None:
    rate = pass_at_k([[1.0, 1.0], [0.0, 0.0, 0.0, 0.0]], 1)

    assert rate.value == 0.5
    assert rate.interval.n == 2
    assert rate.interval.low is not None
    assert rate.interval.low < 0.1


def test_samples_with_the_same_outcome_each_count() -> None:
    assert pass_at_k([[1.0, 0.0]] * 3 + [[1.0, 1.0]], 1).value == (3 * 0.5 + 1) / 4


def test_more_repeats_than_there_are_give_no_rate_but_a_reason() -> None:
    rate = pass_hat_k([[1.0, 1.0], [1.0, 1.0, 1.0]], 4)

    assert rate.value is None
    assert rate.left_out == 2
    assert rate.reason == "no sample has 4 judged repeats (the most is 3)"


def test_samples_with_too_few_repeats_are_left_out_and_counted() -> None:
    rate = pass_at_k([[1.0, 1.0], [0.0]], 2)

    assert (rate.value, rate.interval.n, rate.left_out) == (1.0, 1, 1)
    assert rate.reason is None


def test_unjudged_repeats_are_neither_successes_nor_failures() -> None:
    rate = pass_at_k([[1.0, None, 0.0], [None, None, None]], 1)

    assert rate.value == 0.5
    assert (rate.unjudged, rate.left_out) == (4, 1)


def test_no_samples_have_no_rate() -> None:
    rate = pass_at_k([], 1)

    assert (rate.value, rate.reason) == (None, "the run has no samples")


def test_the_success_rule_is_a_threshold() -> None:
    scores = [[0.5, 0.49]]

    assert pass_at_k(scores, 1).value == 0.0
    assert pass_at_k(scores, 1, threshold=0.5).value == 0.5
    assert pass_at_k([[1, 0]], 1, threshold=1).value == 0.5


def test_weights_that_add_up_to_almost_one_are_a_success() -> None:
    assert pass_at_k([[0.9999999999999999]], 1).value == 1.0


@pytest.mark.parametrize("k", [0, -1])
def test_no_repeats_at_all_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match="at least one repeat"):
        pass_at_k([[1.0]], k)


def test_nan_is_refused_as_score_and_as_threshold() -> None:
    with pytest.raises(ConfigError, match="a score is nan"):
        pass_at_k([[math.nan]], 1)
    with pytest.raises(ConfigError, match="threshold of a success is nan"):
        pass_hat_k([[1.0]], 1, threshold=math.nan)
    with pytest.raises(ConfigError, match="confidence"):
        RepeatCounts().rate("pass@k", 1, confidence=2)


def test_the_usual_numbers_of_repeats_end_with_all_of_them() -> None:
    counts = RepeatCounts()
    assert counts.choose_ks() == ()

    counts.add([1.0] * 7)
    assert counts.choose_ks() == (1, 2, 3, 4, 5, 7)


def test_many_repeats_do_not_overflow() -> None:
    rate = pass_at_k([[1.0] * 10 + [0.0] * 4990], 500)

    assert rate.value == pytest.approx(1 - (1 - 500 / 5000) ** 10, abs=0.01)
