"""Repeats are averaged first; what is contradictory or counted twice is refused."""

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.stats import compare, summarise
from assay.stats.result_types import (
    check_all_finite,
    check_finite,
    group_by_sample,
    list_metric_values,
    read_valid_score,
)
from made_results import Result, run


def test_an_invalid_score_is_no_score_whatever_its_number() -> None:
    assert read_valid_score(Result("x", 0.0, valid=False)) is None
    assert read_valid_score(Result("x", None, valid=True)) is None
    assert read_valid_score(Result("x", 0.0)) == 0.0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e151, -1e151])
def test_a_score_that_cannot_be_averaged_is_refused_with_its_sample(score: float) -> None:
    with pytest.raises(ConfigError, match="the score of sample 'x' is"):
        read_valid_score(Result("x", score))


def test_an_invalid_nan_was_never_counted_and_is_not_refused() -> None:
    assert read_valid_score(Result("x", math.nan, valid=False)) is None


def test_a_repeat_that_comes_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="repeat 0 of sample 's0' occurs twice"):
        list(group_by_sample([*run(1.0), *run(0.0)]))


def test_samples_come_one_at_a_time() -> None:
    def endless() -> Iterator[Result]:
        place = 0
        while True:
            yield Result(f"s{place}", 1.0)
            place += 1

    first, repeats = next(iter(group_by_sample(endless())))

    assert (first, len(repeats)) == ("s0", 1)


def test_whole_numbers_and_truth_values_are_numbers() -> None:
    assert check_finite(1, "x") == 1.0
    assert isinstance(check_finite(True, "x"), float)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e151, -1e151])
def test_many_numbers_are_refused_for_what_one_of_them_is(value: float) -> None:
    assert check_all_finite([1, True, 0.5], "x") == [1.0, 1.0, 0.5]
    assert check_all_finite([], "x") == []
    with pytest.raises(ConfigError, match=r"x is .* not a number to average"):
        check_all_finite([1.0, value, -1.0], "x")


@pytest.mark.parametrize("value", ["0.5", [0.5], {"score": 0.5}, None, 1j])
def test_a_metric_that_is_no_number_counts_as_not_measured(value: Any) -> None:
    results = [Result("x", 1.0, metrics={"tone": value, "length": 2.0}), *run(0.0)]

    summary = summarise(results)

    assert {name: found.left_out for name, found in summary.metrics.items()} == {"length": 1}
    assert list(compare(results, results).metrics) == ["length"]


def test_metrics_may_be_numbers_of_any_type() -> None:
    metrics: Any = {"a": True, "b": Decimal("0.5"), "c": Fraction(1, 4), "d": 2}

    assert list_metric_values(Result("x", 1.0, metrics=metrics)) == [
        ("a", 1.0),
        ("b", 0.5),
        ("c", 0.25),
        ("d", 2.0),
    ]
    assert list_metric_values(Result("x", 1.0, metrics=[1])) == []  # type: ignore[arg-type]  # same


def test_a_repeat_that_comes_twice_with_another_between_is_refused() -> None:
    first, second = Result("x", 1.0), Result("x", 0.0, repeat=1)

    assert [len(repeats) for _, repeats in group_by_sample([first, second])] == [2]
    with pytest.raises(ConfigError, match="repeat 0 of sample 'x' occurs twice"):
        list(group_by_sample([first, second, first]))
