"""The interval of a mean: right where it can be, absent where it cannot, measured to hold."""

import math
import tracemalloc
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from assay.errors import ConfigError
from assay.stats import Interval, RunningStats, estimate_interval, mean_interval, samples_to_prove
from assay.stats.statistics import BINS, SMALLEST_T, compute_beta_limits

Scores = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]
Shape = Callable[[numpy.random.Generator, int], Scores]


def limits(interval: Interval) -> tuple[float, float, float]:
    assert interval.low is not None
    assert interval.high is not None
    assert interval.at_least is not None
    return interval.low, interval.high, interval.at_least


def test_known_limits_of_a_proportion() -> None:
    found = mean_interval([1.0] * 9 + [0.0])

    assert found.mean == 0.9
    assert (found.low, found.high) == pytest.approx((0.5549839, 0.9974714), abs=1e-6)
    assert (found.n, found.confidence, found.method) == (10, 0.95, "beta")
    assert found.reason is None


def test_all_perfect_is_not_proof_of_perfection() -> None:
    found = mean_interval([1.0] * 50)

    assert found.high == 1.0
    assert found.low == pytest.approx(0.025 ** (1 / 50))
    assert found.at_least == pytest.approx(0.942, abs=5e-4)


def test_all_failed_has_a_lower_limit_of_nothing() -> None:
    found = mean_interval([0.0] * 10)

    assert (found.mean, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 10))
    assert found.at_least == 0.0


def test_no_scores_have_no_mean() -> None:
    assert mean_interval([]) == Interval(
        None, None, None, 0, 0.95, None, reason="no sample was judged"
    )


def test_one_score_says_little() -> None:
    found = mean_interval([1.0])

    assert limits(found)[:2] == pytest.approx((0.025, 1.0))


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_what_cannot_be_averaged_is_refused(score: float) -> None:
    with pytest.raises(ConfigError, match="not a number to average"):
        mean_interval([0.5, score])


@pytest.mark.parametrize("confidence", [0.5, 1.0, 0.0, 95, -0.95, math.nan])
def test_a_confidence_out_of_range_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match="confidence is"):
        mean_interval([1.0], confidence=confidence)
    with pytest.raises(ConfigError, match="confidence is"):
        mean_interval([], confidence=confidence)


def test_more_confidence_needs_a_wider_interval() -> None:
    scores = [1.0, 0.0, 0.5, 1.0]
    usual, sure = mean_interval(scores), mean_interval(scores, confidence=0.99)

    assert limits(sure)[0] < limits(usual)[0]
    assert limits(sure)[1] > limits(usual)[1]
    assert limits(sure)[2] < limits(usual)[2]


def test_bounds_move_and_stretch_the_scale() -> None:
    unit, stretched = mean_interval([0.0, 0.5, 1.0]), mean_interval([1, 3, 5], bounds=(1, 5))

    assert stretched.mean == 3.0
    assert limits(stretched) == pytest.approx(tuple(1 + 4 * limit for limit in limits(unit)))
    assert stretched.method == "beta"


def test_a_score_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"from 1\.0 to 6\.0 are outside the bounds"):
        mean_interval([1, 6], bounds=(1, 5))
    with pytest.raises(ConfigError, match=r"from 0\.0 to 5\.0 are outside the bounds"):
        mean_interval([0, 5], bounds=(1, 5))


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_bounds_that_are_none_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(ConfigError):
        mean_interval([1.0], bounds=bounds)


def test_scores_without_bounds_need_thirty_samples() -> None:
    few = mean_interval([float(score) for score in range(SMALLEST_T - 1)])
    enough = mean_interval([float(score) for score in range(SMALLEST_T)])

    assert few.mean == 14.0
    assert (few.low, few.high, few.at_least, few.method) == (None, None, None, None)
    assert few.reason == "29 scores without bounds: 30 are needed, or bounds"
    assert enough.method == "t"
    assert enough.mean == 14.5
    away = 2.045230 * math.sqrt(77.5) / math.sqrt(30)
    assert (enough.low, enough.high) == pytest.approx((14.5 - away, 14.5 + away), abs=1e-5)
    assert enough.at_least == pytest.approx(14.5 - 1.699127 * math.sqrt(77.5 / 30), abs=1e-5)


def test_equal_scores_without_bounds_claim_no_certainty() -> None:
    found = mean_interval([7.0] * 40)

    assert (found.mean, found.low, found.high) == (7.0, None, None)
    assert found.reason == "all scores are equal: no spread"


def test_a_hair_above_one_is_one() -> None:
    found = mean_interval([1.0000000000000002, 1.0])

    assert found.method == "beta"
    assert found.high == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_mean_is_inside_its_interval_and_the_interval_on_the_scale(scores: list[float]) -> None:
    found = mean_interval(scores)

    low, high, at_least = limits(found)
    assert found.mean is not None
    assert min(scores) <= found.mean <= max(scores)
    assert 0 <= low <= at_least <= found.mean + 1e-9
    assert found.mean - 1e-9 <= high <= 1


def tail(successes: int, n: int, rate: float) -> float:
    """How likely `n` tries of this rate succeed at least so often."""
    return math.fsum(
        math.comb(n, count) * rate**count * (1 - rate) ** (n - count)
        for count in range(successes, n + 1)
    )


@pytest.mark.parametrize(("successes", "n"), [(1, 1), (0, 3), (1, 10), (7, 10), (29, 30), (30, 30)])
def test_binary_scores_get_the_exact_binomial_limits(successes: int, n: int) -> None:
    low, high = compute_beta_limits(float(successes), n, 0.95)

    if successes:
        assert tail(successes, n, low) == pytest.approx(0.025)
    if successes < n:
        assert 1 - tail(successes + 1, n, high) == pytest.approx(0.025)


def binary(rate: float) -> Shape:
    return lambda generator, n: (generator.random(n) < rate).astype(float)


def rare_zero(generator: numpy.random.Generator, n: int) -> Scores:
    """Mostly nearly perfect, and once in fifty nothing."""
    return numpy.where(generator.random(n) < 0.02, 0.0, generator.uniform(0.95, 1.0, n))


def uniform(generator: numpy.random.Generator, n: int) -> Scores:
    return generator.random(n)


def coverage(shape: Shape, truth: float, n: int, sets: int = 1500) -> tuple[float, float]:
    """How often the interval holds the true mean, and how often Student's t would."""
    generator = numpy.random.default_rng(20)
    ours = student = 0
    for _ in range(sets):
        scores = shape(generator, n)
        low, high = compute_beta_limits(float(scores.sum()), n, 0.95)
        away = stdtrit(n - 1, 0.975) * scores.std(ddof=1) / math.sqrt(n)
        ours += low <= truth <= high
        student += abs(scores.mean() - truth) <= away
    return ours / sets, student / sets


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize(
    ("shape", "truth"),
    [(binary(0.9), 0.9), (rare_zero, 0.98 * 0.975), (uniform, 0.5), (binary(0.5), 0.5)],
    ids=["binary .9", "rare zero", "uniform", "binary .5"],
)
def test_the_interval_holds_its_confidence(shape: Shape, truth: float, n: int) -> None:
    assert coverage(shape, truth, n)[0] >= 0.93


@pytest.mark.parametrize(
    ("shape", "truth", "n"),
    [(binary(0.9), 0.9, 10), (rare_zero, 0.98 * 0.975, 10), (rare_zero, 0.98 * 0.975, 30)],
    ids=["binary, 10", "rare zero, 10", "rare zero, 30"],
)
def test_students_interval_would_not_have(shape: Shape, truth: float, n: int) -> None:
    assert coverage(shape, truth, n)[1] < 0.7


def test_repeats_taken_for_samples_would_not_hold() -> None:
    """Thirty samples of five repeats each are thirty samples, not a hundred and fifty."""
    generator = numpy.random.default_rng(4)
    averaged = flat = 0
    for _ in range(1000):
        rates = generator.beta(1, 1, 30)
        repeats = (generator.random((30, 5)) < rates[:, None]).astype(float)
        low, high = compute_beta_limits(float(repeats.mean(axis=1).sum()), 30, 0.95)
        averaged += low <= 0.5 <= high
        low, high = compute_beta_limits(float(repeats.sum()), 150, 0.95)
        flat += low <= 0.5 <= high

    assert averaged / 1000 >= 0.95
    assert flat / 1000 < 0.9


@pytest.mark.parametrize(
    ("minimum", "needed"), [(0.8, 14), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)]
)
def test_how_many_perfect_samples_prove_a_minimum(minimum: float, needed: int) -> None:
    enough, short = mean_interval([1.0] * needed), mean_interval([1.0] * (needed - 1))

    assert samples_to_prove(minimum) == needed
    assert limits(enough)[2] >= minimum
    assert limits(short)[2] < minimum


def test_perfection_cannot_be_proven_and_nothing_needs_no_proof() -> None:
    assert samples_to_prove(1) is None
    assert samples_to_prove(1.5) is None
    assert samples_to_prove(0) == 1
    assert samples_to_prove(0.05) == 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_running_numbers_are_those_of_the_whole_list(scores: list[float]) -> None:
    stats = RunningStats()
    for score in scores:
        stats.extend([score])

    assert stats.n == len(scores)
    assert stats.mean == pytest.approx(math.fsum(scores) / len(scores), abs=1e-6)
    assert stats.stdev == pytest.approx(float(numpy.std(scores, ddof=1)), rel=1e-6, abs=1e-6)
    assert (stats.minimum, stats.maximum) == (min(scores), max(scores))


def test_a_fresh_stream_knows_nothing() -> None:
    stats = RunningStats()

    assert (stats.n, stats.mean, stats.stdev, stats.minimum, stats.bins) == (0, *[None] * 4)
    assert stats.interval().mean is None


def test_one_score_has_no_spread() -> None:
    stats = RunningStats()
    stats.extend([0.5])

    assert stats.stdev is None
    assert stats.mean == 0.5


def test_ten_bins_of_the_unit_scale() -> None:
    stats = RunningStats()
    for score in (0.0, 0.05, 0.1, 0.3, 0.7, 0.95, 1.0):
        stats.extend([score])

    assert stats.bins == (2, 1, 0, 1, 0, 0, 0, 1, 0, 2)
    assert BINS == 10


def test_a_rounded_mean_is_in_the_bin_of_its_shown_number() -> None:
    stats = RunningStats()
    stats.extend([math.fsum([0.7] * 3) / 3, 0.6999])

    assert stats.bins == (0, 0, 0, 0, 0, 0, 1, 1, 0, 0)


def test_one_score_off_the_scale_means_no_bins() -> None:
    stats = RunningStats()
    stats.extend([0.5])
    stats.extend([1.5])

    assert stats.bins is None


def test_only_zeros_and_ones_are_binary() -> None:
    stats = RunningStats()
    for score in (0, 1, True, 0.0):
        stats.extend([score])
    assert stats.binary

    stats.extend([0.5])
    assert not stats.binary


def test_small_scores_are_not_lost_beside_large_ones() -> None:
    stats = RunningStats()
    for score in (1e16, 1.0, -1e16):
        stats.extend([score])

    assert stats.total == 1.0


def test_a_long_stream_needs_no_more_memory_than_a_short_one() -> None:
    stats = RunningStats()
    draw = numpy.random.default_rng(0)
    for score in draw.random(10_000):
        stats.extend([float(score)])

    tracemalloc.start()
    for score in draw.random(25_000):
        stats.extend([float(score)])
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert stats.n == 35_000
    assert grown < 600_000


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.integers(1, 7))
def test_scores_counted_together_are_the_same_as_one_by_one(scores: list[float], by: int) -> None:
    single, together = RunningStats(), RunningStats()

    for score in scores:
        single.extend([score])
    for start in range(0, len(scores), by):
        together.extend(scores[start : start + by])

    assert (together.n, together.bins) == (single.n, single.bins)
    assert (together.minimum, together.maximum) == (single.minimum, single.maximum)
    assert (together.total, together.mean) == pytest.approx((single.total, single.mean))
    assert together.stdev == pytest.approx(single.stdev, rel=1e-6, abs=1e-6)
    assert together.percentiles.at(50) == single.percentiles.at(50)


def test_a_spread_around_a_large_number_is_kept() -> None:
    scores = [1e9 + part for part in (0.0, 1.0, 2.0)] * 1000
    stats = RunningStats()

    for start in range(0, 3000, 7):
        stats.extend(scores[start : start + 7])

    assert stats.stdev == pytest.approx(numpy.std([0.0, 1.0, 2.0] * 1000, ddof=1))


def test_one_score_that_cannot_be_averaged_counts_none_of_those_with_it() -> None:
    stats = RunningStats()

    with pytest.raises(ConfigError, match="a score is nan"):
        stats.extend([1.0, math.nan, 0.0])

    assert (stats.n, stats.mean) == (0, None)


@pytest.mark.parametrize("scores", [[1.0, 0.0, 1.0, 1.0], [0.2, 0.4, 0.9], [5.0, -2.0, 7.5] * 20])
def test_an_interval_of_sums_is_that_of_the_scores(scores: list[float]) -> None:
    estimated = estimate_interval(len(scores), sum(scores), sum(each * each for each in scores))

    exact = mean_interval(scores)
    assert estimated.mean == pytest.approx(exact.mean)
    assert estimated.low == pytest.approx(exact.low)
    assert estimated.high == pytest.approx(exact.high)


def test_an_interval_of_sums_knows_the_bounds() -> None:
    estimated = estimate_interval(4, 30.0, 250.0, bounds=(0.0, 10.0))

    assert estimated == mean_interval([5.0, 5.0, 10.0, 10.0], bounds=(0.0, 10.0))
    assert estimate_interval(0, 0.0, 0.0).mean is None
