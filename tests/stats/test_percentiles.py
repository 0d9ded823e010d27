"""Nearest rank: no value that did not occur, and the same in constant memory."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.stats import RunningPercentiles, percentile
from assay.stats.percentiles import MAX_EXACT_VALUES


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 1), (1, 1), (7, 7), (50, 50), (90, 90), (95, 95), (99, 99), (100, 100)],
)
def test_the_nearest_rank_of_a_hundred_values(percent: float, expected: float) -> None:
    assert percentile(range(100, 0, -1), percent) == expected


def test_between_two_values_the_upper_one_is_taken() -> None:
    assert percentile([1.0, 2.0], 50) == 1.0
    assert percentile([1.0, 2.0], 50.1) == 2.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 50) is None
    assert RunningPercentiles().at(50) is None


def test_what_never_ended_is_the_largest_value() -> None:
    assert percentile([1.0, math.inf, 2.0], 50) == 2.0
    assert percentile([1.0, math.inf, 2.0], 99) == math.inf


def test_nan_and_a_percent_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="nan has no rank"):
        percentile([1.0, math.nan], 50)
    with pytest.raises(ConfigError, match="nan has no rank"):
        RunningPercentiles().extend([math.nan])
    for percent in (-1, 100.5, math.nan):
        with pytest.raises(ConfigError, match="not within"):
            percentile([1.0], percent)


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(0, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)

    assert found in values
    assert sum(value <= found for value in values) >= percent * len(values) / 100


def streamed(values: list[float]) -> RunningPercentiles:
    running = RunningPercentiles()
    for value in values:
        running.extend([value])
    return running


def test_a_stream_is_exact_up_to_the_limit_and_says_when_it_is_not() -> None:
    values = [float(value) for value in range(MAX_EXACT_VALUES)]

    within, beyond = streamed(values), streamed([*values, 5000.0])

    assert within.exact
    assert within.at(95) == percentile(values, 95)
    assert not beyond.exact
    assert beyond.n == MAX_EXACT_VALUES + 1


@pytest.mark.parametrize("percent", [0, 1, 25, 50, 75, 90, 99, 100])
def test_beyond_the_limit_a_stream_is_within_half_a_percent(percent: float) -> None:
    draw = random.Random(7)
    values = [draw.lognormvariate(0, 2) - 1.0 for _ in range(20_000)]

    found, exact = streamed(values).at(percent), percentile(values, percent)

    assert found == pytest.approx(exact, rel=0.0051)


def test_the_ends_of_a_long_stream_are_exact() -> None:
    values = [-3.25, *([0.0] * 10_000), 7.75]

    running = streamed(values)

    assert (running.at(0), running.at(50), running.at(100)) == (-3.25, 0.0, 7.75)


def test_infinities_of_a_long_stream_keep_their_side() -> None:
    running = streamed([-math.inf] * 3000 + [1.0] * 3000 + [math.inf] * 3000)

    assert running.at(10) == -math.inf
    assert running.at(50) == pytest.approx(1.0, rel=0.0051)
    assert running.at(90) == math.inf


def test_memory_does_not_grow_with_the_stream() -> None:
    draw = random.Random(1)
    running = streamed([draw.uniform(0.001, 1000) for _ in range(100_000)])

    assert len(running._buckets) < 1500


@pytest.mark.parametrize(
    "count", [10, MAX_EXACT_VALUES, MAX_EXACT_VALUES + 1, 3 * MAX_EXACT_VALUES]
)
def test_values_added_together_are_the_same_as_one_by_one(count: int) -> None:
    values = [((place * 7919) % 1000) / 100 - 2 for place in range(count)]
    together = RunningPercentiles()

    for start in range(0, count, 1000):
        together.extend(values[start : start + 1000])

    single = streamed(values)
    assert (together.n, together.exact) == (single.n, single.exact)
    assert [together.at(rank) for rank in range(0, 101, 5)] == [
        single.at(rank) for rank in range(0, 101, 5)
    ]


def test_infinities_that_cancel_out_are_values_like_any_other() -> None:
    running = RunningPercentiles()

    running.extend([math.inf, -math.inf, 1.0])

    assert (running.at(0), running.at(50), running.at(100)) == (-math.inf, 1.0, math.inf)
    with pytest.raises(ConfigError, match="nan has no rank"):
        running.extend([1.0, math.nan])
