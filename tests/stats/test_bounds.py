"""One-sided bounds: exact where scipy is, never too narrow by simulation, and rows they need."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, binom, binomtest

from assay.errors import ConfigError
from assay.stats.bounds import percentile_bounds, rows_for_percentile, rows_to_prove, score_bounds

Draws = npt.NDArray[np.float64]
DRAWS = 4000
SLACK = 4 * math.sqrt(0.95 * 0.05 / DRAWS)
"""Four standard errors of a share of 0.95 over so many draws."""


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (9, 10), (29, 30), (50, 100), (1, 300)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_bounds_of_right_and_wrong_are_those_of_the_exact_binomial_test(
    right: int, n: int, confidence: float
) -> None:
    bounds = score_bounds([1.0] * right + [0.0] * (n - right), confidence=confidence)

    test = {
        side: binomtest(right, n, alternative=side).proportion_ci(confidence, method="exact")
        for side in ("two-sided", "greater", "less")
    }
    assert bounds.mean == right / n
    assert bounds.lower == pytest.approx(test["two-sided"].low, abs=1e-12)
    assert bounds.upper == pytest.approx(test["two-sided"].high, abs=1e-12)
    assert bounds.at_least == pytest.approx(test["greater"].low, abs=1e-12)
    assert bounds.at_most == pytest.approx(test["less"].high, abs=1e-12)


def test_fractions_put_their_sum_in_the_place_of_the_count() -> None:
    bounds = score_bounds([0.5, 0.25, 1.0, 0.9])

    assert bounds.at_least == pytest.approx(beta.ppf(0.05, 2.65, 4 - 2.65 + 1))
    assert bounds.at_most == pytest.approx(beta.ppf(0.95, 2.65 + 1, 4 - 2.65))


def test_scores_on_another_scale_get_bounds_on_it() -> None:
    grades = score_bounds([1.0, 5.0, 4.0, 3.0], bounds=(1.0, 5.0))
    shares = score_bounds([0.0, 1.0, 0.75, 0.5])

    assert grades.mean == 3.25
    assert grades.at_least == pytest.approx(1 + 4 * shares.at_least)
    assert grades.upper == pytest.approx(1 + 4 * shares.upper)


@pytest.mark.parametrize(
    ("scores", "message"),
    [([], "`scores` is empty"), ([0.5, 1.5], "outside 0 to 1"), ([math.nan], "nan")],
)
def test_what_has_no_bounds_is_refused(scores: list[float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        score_bounds(scores)


Shape = Callable[[np.random.Generator, tuple[int, int]], Draws]
SHAPES: dict[str, Shape] = {
    "0/1, 0.9": lambda dice, size: (dice.random(size) < 0.9).astype(float),
    "0/1, 0.98": lambda dice, size: (dice.random(size) < 0.98).astype(float),
    "0/1, 0.5": lambda dice, size: (dice.random(size) < 0.5).astype(float),
    "uniform": lambda dice, size: dice.random(size),
    "mostly perfect": lambda dice, size: np.where(dice.random(size) < 0.05, 0.0, 1.0),
    "thirds": lambda dice, size: dice.integers(0, 4, size) / 3,
    "high and narrow": lambda dice, size: dice.beta(40, 10, size),
    "two humps": lambda dice, size: dice.beta(0.3, 0.1, size),
}
MEANS = {
    "0/1, 0.9": 0.9,
    "0/1, 0.98": 0.98,
    "0/1, 0.5": 0.5,
    "uniform": 0.5,
    "mostly perfect": 0.95,
    "thirds": 0.5,
    "high and narrow": 0.8,
    "two humps": 0.75,
}


@pytest.mark.parametrize("n", [10, 30, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_stated_confidence_holds_for_every_shape_of_scores(shape: str, n: int) -> None:
    dice = np.random.default_rng([n, len(shape)])
    draws: Draws = SHAPES[shape](dice, (DRAWS, n))

    sums = draws.sum(axis=1)
    at_least = np.where(sums > 0, beta.ppf(0.05, sums, n - sums + 1), 0.0)
    at_most = np.where(sums < n, beta.ppf(0.95, sums + 1, n - sums), 1.0)

    assert np.mean(at_least <= MEANS[shape]) >= 0.95 - SLACK
    assert np.mean(at_most >= MEANS[shape]) >= 0.95 - SLACK
    # What was simulated is what is offered.
    for row in range(3):
        offered = score_bounds(draws[row].tolist())
        assert offered.at_least == pytest.approx(at_least[row], abs=1e-9)
        assert offered.at_most == pytest.approx(at_most[row], abs=1e-9)


def test_repeats_taken_for_samples_would_claim_too_much() -> None:
    """Why they are averaged first: the same answers five times prove nothing new."""
    dice = np.random.default_rng(5)
    skill = dice.beta(2, 0.5, (DRAWS, 30, 1))
    repeats = (dice.random((DRAWS, 30, 5)) < skill).astype(float)

    averaged = repeats.mean(axis=2).sum(axis=1)
    pooled = repeats.sum(axis=(1, 2))

    assert np.mean(beta.ppf(0.05, averaged, 31 - averaged) <= 0.8) >= 0.95 - SLACK
    assert np.mean(beta.ppf(0.05, pooled, 151 - pooled) <= 0.8) < 0.9


@pytest.mark.parametrize(
    ("threshold", "rows"), [(0.8, 14), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)]
)
def test_the_rows_that_prove_a_threshold_are_known(threshold: float, rows: int) -> None:
    assert rows_to_prove(threshold) == rows
    assert score_bounds([1.0] * rows).at_least >= threshold
    assert score_bounds([1.0] * (rows - 1)).at_least < threshold
    assert rows_to_prove(round(1 - threshold, 6), direction="min") == rows


def test_rows_follow_the_range_and_the_confidence() -> None:
    assert rows_to_prove(4.6, bounds=(1.0, 5.0)) == 29
    assert rows_to_prove(0.9, confidence=0.99) == 44
    assert rows_to_prove(1.0) is None
    assert rows_to_prove(0.0, direction="min") is None


@pytest.mark.parametrize(("percent", "rows"), [(50, 5), (90, 29), (95, 59), (99, 299)])
def test_a_percentile_has_an_upper_bound_from_so_many_samples_on(percent: float, rows: int) -> None:
    values = [float(value) for value in range(rows)]

    assert rows_for_percentile(percent) == rows
    assert percentile_bounds(values, values, percent=percent)[1] == rows - 1
    assert percentile_bounds(values[1:], values[1:], percent=percent)[1] is None


@pytest.mark.parametrize("n", [1, 2, 10, 59, 100, 1000])
@pytest.mark.parametrize("percent", [50, 90, 95, 99])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_ranks_of_bounds_are_quantiles_of_the_binomial(
    n: int, percent: float, confidence: float
) -> None:
    values = [float(value) for value in range(1, n + 1)]

    lower, upper = percentile_bounds(values, values, percent=percent, confidence=confidence)

    first = binom.ppf(1 - confidence, n, percent / 100)
    last = binom.ppf(confidence, n, percent / 100) + 1
    assert lower == (first if first >= 1 else None)
    assert upper == (last if last <= n else None)


def test_bounds_of_a_percentile_are_order_statistics_of_the_binomial() -> None:
    values = [float(value) for value in range(1, 101)]

    lower, upper = percentile_bounds(values, values, percent=95)

    assert upper == 99.0
    assert binom.cdf(98, 100, 0.95) >= 0.95 > binom.cdf(97, 100, 0.95)
    assert lower == binom.ppf(0.05, 100, 0.95)
    assert percentile_bounds([], [], percent=95) == (None, None)


@pytest.mark.parametrize("n", [59, 100, 300])
def test_the_bounds_of_a_percentile_keep_their_confidence(n: int) -> None:
    dice = np.random.default_rng(n)
    draws = np.sort(dice.lognormal(0, 0.4, (DRAWS, n)), axis=1)
    true = math.exp(0.4 * 1.6448536269514722)

    upper = draws[:, int(binom.ppf(0.95, n, 0.95))]
    lower = draws[:, int(binom.ppf(0.05, n, 0.95)) - 1]

    assert np.mean(upper >= true) >= 0.95 - SLACK
    assert np.mean(lower <= true) >= 0.95 - SLACK
    first = draws[0].tolist()
    assert percentile_bounds(first, first, percent=95) == (lower[0], upper[0])


def test_repeats_of_a_sample_speak_against_the_bound() -> None:
    least, most = [1.0] * 59, [1.0] * 58 + [9.0]

    assert percentile_bounds(least, most, percent=95) == (1.0, 9.0)


@pytest.mark.parametrize("percent", [0, 100, -5])
def test_a_percentile_without_bounds_is_refused(percent: float) -> None:
    with pytest.raises(ConfigError, match="not between 0 and 100"):
        percentile_bounds([1.0], [1.0], percent=percent)


def test_as_many_smallest_as_largest_values_are_needed() -> None:
    with pytest.raises(ConfigError, match="`least` and `most` differ in length"):
        percentile_bounds([1.0], [1.0, 2.0], percent=95)
