"""Paired differences: the test against every rearrangement, the interval against simulation."""

import math
from collections.abc import Callable
from itertools import product

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from assay.errors import ConfigError
from assay.stats import difference_interval, sign_flip_test
from assay.stats.paired_tests import MAX_EXACT_DIFFERENCES, find_fewest_pairs

Differences = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]
Draw = Callable[[numpy.random.Generator], Differences]


def by_hand(differences: list[float]) -> float:
    observed = abs(math.fsum(differences)) - 1e-9
    signs = list(product((1, -1), repeat=len(differences)))
    flipped = (math.fsum(s * d for s, d in zip(row, differences, strict=True)) for row in signs)
    return sum(abs(total) >= observed for total in flipped) / len(signs)


@given(st.lists(st.sampled_from([-0.7, -0.3, -0.1, 0.0, 0.1, 0.2, 1.0]), min_size=1, max_size=8))
def test_the_p_value_is_that_of_every_choice_of_signs(differences: list[float]) -> None:
    assert sign_flip_test(differences).p_value == pytest.approx(by_hand(differences))


def test_differences_of_one_size_are_a_sign_test() -> None:
    test = sign_flip_test([0.5] * 9 + [-0.5] + [0.0] * 100)

    assert test.method == "sign test, exact"
    assert test.p_value == pytest.approx(2 * 11 / 1024)


def test_as_many_wins_as_losses_are_no_evidence() -> None:
    assert sign_flip_test([1.0, -1.0]).p_value == 1.0


def test_no_differences_and_no_pairs() -> None:
    assert sign_flip_test([0.0, 0.0]).p_value == 1.0
    assert sign_flip_test([]).p_value is None


def test_float_noise_does_not_hide_ties() -> None:
    assert sign_flip_test([0.1 + 0.2 - 0.3] * 50).p_value == 1.0
    assert sign_flip_test([0.1, 0.2, -0.3]).p_value == 1.0


def test_up_to_twenty_differences_are_exact_and_more_are_drawn() -> None:
    exact = sign_flip_test([0.1 + place / 1000 for place in range(MAX_EXACT_DIFFERENCES)])
    drawn = sign_flip_test([0.1 + place / 1000 for place in range(MAX_EXACT_DIFFERENCES + 1)])

    assert exact.method == "permutation test, exact"
    assert exact.p_value == pytest.approx(2 / 2**MAX_EXACT_DIFFERENCES)
    assert drawn.method == "permutation test, 10000 draws, seed 0"
    assert drawn.p_value == pytest.approx(1 / 10_001)


def test_drawn_signs_come_close_to_the_exact_answer() -> None:
    generator = numpy.random.default_rng(3)
    differences = [float(d) for d in generator.normal(0.1, 1, 400)]
    error = float(numpy.sqrt(numpy.square(differences).sum()))
    normal = math.erfc(abs(math.fsum(differences)) / error / math.sqrt(2))

    assert sign_flip_test(differences).p_value == pytest.approx(normal, abs=0.015)


def test_a_seed_gives_the_same_answer_each_time_and_another_seed_another() -> None:
    differences = [math.sin(place) + 0.05 for place in range(200)]

    assert sign_flip_test(differences, seed=5) == sign_flip_test(differences, seed=5)
    assert len({sign_flip_test(differences, seed=seed).p_value for seed in range(4)}) > 1


def test_large_sets_are_drawn_less_often_and_say_so() -> None:
    differences = numpy.random.default_rng(0).normal(0, 1, 50_000).tolist()

    assert sign_flip_test(differences).method == "permutation test, 2000 draws, seed 0"


def test_under_no_difference_the_test_rarely_says_otherwise() -> None:
    generator = numpy.random.default_rng(8)
    p_values = [sign_flip_test(generator.normal(0, 1, 9).tolist()).p_value for _ in range(600)]

    called = sum(p is not None and p <= 0.05 for p in p_values)
    assert 0.02 <= called / 600 <= 0.075


def test_how_few_differences_can_ever_tell() -> None:
    assert find_fewest_pairs() == 6
    assert find_fewest_pairs(0.99) == 8
    assert sign_flip_test([1.0] * 6).p_value == pytest.approx(0.03125)
    assert sign_flip_test([1.0] * 5).p_value == pytest.approx(0.0625)


def test_an_interval_of_no_pairs_is_none_with_a_reason() -> None:
    found = difference_interval([])

    assert (found.mean, found.low, found.n) == (None, None, 0)
    assert found.reason == "no sample was judged on both"


def test_no_difference_seen_is_not_no_difference() -> None:
    found = difference_interval([0.0] * 30)

    assert found.mean == 0.0
    assert found.low is not None
    assert found.high is not None
    assert -0.2 < found.low < -0.05
    assert found.high == pytest.approx(-found.low)


def test_the_interval_turns_round_with_the_sides() -> None:
    differences = [1.0, 1.0, 0.5, 0.0, -0.25, 0.0, 0.0, 1.0]

    there, back = difference_interval(differences), difference_interval([-d for d in differences])

    assert there.low is not None
    assert there.high is not None
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


def test_the_interval_stretches_with_the_scale() -> None:
    unit = difference_interval([0.5, -0.25, 0.0, 1.0])
    ten = difference_interval([5.0, -2.5, 0.0, 10.0], scale=10.0)

    assert unit.low is not None
    assert unit.high is not None
    assert unit.at_least is not None
    assert (ten.low, ten.high) == pytest.approx((10 * unit.low, 10 * unit.high))
    assert ten.at_least == pytest.approx(10 * unit.at_least)
    assert unit.low < unit.at_least


def test_without_a_scale_thirty_pairs_are_needed() -> None:
    few = difference_interval([1.0, 5.0] * 10, scale=None)
    many = difference_interval([1.0, 5.0] * 20, scale=None)

    assert (few.low, few.reason) == (None, "20 scores without bounds: 30 are needed, or bounds")
    assert many.method == "t"
    assert many.low is not None
    assert 2.3 < many.low < 2.4
    assert difference_interval([4.0], scale=None).low is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_mean_difference_is_inside_its_interval(differences: list[float]) -> None:
    found = difference_interval(differences)

    assert found.mean is not None
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.high <= 1


def whole(wins: float, losses: float, n: int) -> Draw:
    """Samples won and lost by a whole point, at these rates."""
    return lambda generator: generator.choice(
        numpy.array([1.0, -1.0, 0.0]), n, p=[wins, losses, max(1 - wins - losses, 0)]
    )


def rare_collapse(generator: numpy.random.Generator) -> Differences:
    scores = generator.random(30)
    return numpy.where(generator.random(30) < 0.1, 0.0, scores) - scores


SHAPES: dict[str, tuple[Draw, float]] = {
    "only losses, rare": (whole(0, 0.05, 30), -0.05),
    "rare both ways": (whole(0.03, 0.03, 30), 0.0),
    "often both ways": (whole(0.5, 0.5, 30), 0.0),
    "mixed": (whole(0.3, 0.2, 30), 0.1),
    "mostly won, few": (whole(0.9, 0.1, 10), 0.8),
    "rare collapse": (rare_collapse, -0.05),
    "fractions": (lambda generator: generator.random(30) - generator.random(30), 0.0),
}


def coverage(draw: Draw, truth: float) -> tuple[float, float]:
    generator = numpy.random.default_rng(12)
    ours = student = 0
    for _ in range(1000):
        differences = draw(generator)
        found = difference_interval(differences.tolist())
        assert found.low is not None
        assert found.high is not None
        n = len(differences)
        away = stdtrit(n - 1, 0.975) * differences.std(ddof=1) / math.sqrt(n)
        ours += found.low - 1e-12 <= truth <= found.high + 1e-12
        student += bool(abs(differences.mean() - truth) <= away + 1e-12)
    return ours / 1000, student / 1000


@pytest.mark.parametrize(("draw", "truth"), SHAPES.values(), ids=SHAPES)
def test_the_interval_of_a_difference_holds_its_confidence(draw: Draw, truth: float) -> None:
    assert coverage(draw, truth)[0] >= 0.93


@pytest.mark.parametrize("shape", ["only losses, rare", "mostly won, few", "rare collapse"])
def test_students_interval_of_a_difference_would_not_have(shape: str) -> None:
    assert coverage(*SHAPES[shape])[1] < 0.9


def test_a_confidence_out_of_range_is_refused() -> None:
    for confidence in (0.5, 1.0, math.nan):
        with pytest.raises(ConfigError, match="confidence is"):
            difference_interval([1.0], confidence=confidence)


def test_many_differences_of_few_sizes_are_drawn_together() -> None:
    # Differences of scores in tenths; half of them with rounding errors in the last digit.
    generator = numpy.random.default_rng(7)
    sizes = generator.integers(1, 10, 20_000) / 10
    noisy = [size * (1 + 2**-52) if place % 2 else size for place, size in enumerate(sizes)]
    signs = numpy.where(generator.random(20_000) < 0.509, 1.0, -1.0)
    moved = (numpy.asarray(noisy) * signs).tolist()

    found = sign_flip_test(moved)

    # With so many differences the sum is normally distributed.
    z = abs(math.fsum(moved)) / math.sqrt(math.fsum(each * each for each in moved))
    assert found.p_value == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.01)
    # All draws, although as many signs would take a second.
    assert found.method == "permutation test, 10000 draws, seed 0"


def test_many_differences_of_different_sizes_are_drawn_one_by_one() -> None:
    generator = numpy.random.default_rng(8)
    moved = generator.normal(0.004, 1.0, 20_000).tolist()

    found = sign_flip_test(moved)

    z = abs(math.fsum(moved)) / math.sqrt(math.fsum(each * each for each in moved))
    assert found.p_value == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.02)
    assert found.method == "permutation test, 5000 draws, seed 0"
