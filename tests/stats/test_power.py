"""The detectable difference: a true one of that size is found about four times out of five."""

import math
from collections.abc import Callable

import numpy
import pytest

from assay.errors import ConfigError
from assay.stats import detectable_difference, sign_flip_test
from simulated import Numbers, is_worse, paired, scores


def found_share(n: int, p: float, repeats: tuple[int, int] = (1, 1), *, draws: int = 200) -> float:
    """How often a fall of the detectable size is found, each size from an unchanged system."""
    generator = numpy.random.default_rng([n, int(100 * p), *repeats])
    before = numpy.full(n, p)
    asked = found = 0
    for _ in range(draws):
        first, second = (scores(generator, before, count) for count in repeats)
        size = paired(first, second).detectable(0.95)
        if size is not None and size < p:
            asked += 1
            a = scores(generator, before, repeats[0])
            b = scores(generator, before - size, repeats[1])
            found += is_worse(paired(a, b))
    assert asked > draws / 2
    return found / asked


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("p", [0.5, 0.7, 0.9, 0.95])
def test_a_fall_of_the_detectable_size_is_found_for_scores_of_0_and_1(n: int, p: float) -> None:
    assert 0.7 <= found_share(n, p) <= 0.92


@pytest.mark.parametrize("repeats", [(5, 5), (1, 20), (20, 1)])
def test_and_with_repeats(repeats: tuple[int, int]) -> None:
    assert 0.68 <= found_share(50, 0.9, repeats, draws=100) <= 0.92


def normal(generator: numpy.random.Generator) -> Numbers:
    return generator.normal(0.5, 0.2, (60, 1))


def uniform(generator: numpy.random.Generator) -> Numbers:
    return generator.random((60, 1))


@pytest.mark.parametrize("draw", [normal, uniform])
def test_and_for_scores_that_all_fall_alike(
    draw: Callable[[numpy.random.Generator], Numbers],
) -> None:
    generator = numpy.random.default_rng(3)
    found = 0
    for _ in range(150):
        size = paired(draw(generator), draw(generator)).detectable(0.95)
        assert size is not None
        found += is_worse(paired(draw(generator), draw(generator) - size))

    assert 0.7 <= found / 150 <= 0.9


def test_differences_alone_are_enough() -> None:
    generator = numpy.random.default_rng(2)
    detectable = detectable_difference(generator.normal(0, 0.2, 100).tolist())
    assert detectable is not None

    found = 0
    for _ in range(100):
        p_value = sign_flip_test(generator.normal(detectable, 0.2, 100).tolist()).p_value
        found += p_value is not None and p_value <= 0.05

    assert 65 <= found <= 95


def test_where_few_samples_differ_more_than_six_must_turn() -> None:
    """Six would be enough for the test, but a share of six in twenty does not always give six."""
    found = detectable_difference([1.0] + [0.0] * 19)

    assert found is not None
    assert 0.35 < found < 0.5


def test_more_samples_show_smaller_differences() -> None:
    found = [detectable_difference([1.0, -1.0, *[0.0] * 8] * times) for times in (2, 10, 100, 1000)]

    known = [each for each in found if each is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == 4
    assert known[-1] < 0.02


def test_nothing_seen_gives_no_detectable_difference() -> None:
    assert detectable_difference([]) is None
    assert detectable_difference([1.0]) is None
    assert detectable_difference([0.0] * 50) is None


def test_too_few_pairs_for_the_test_can_show_nothing() -> None:
    assert detectable_difference([1.0, -1.0, 0.5, 0.25, 0.1]) is None


def test_a_confidence_out_of_range_is_refused() -> None:
    for confidence in (0.5, 1.0, math.nan):
        with pytest.raises(ConfigError, match="confidence is"):
            detectable_difference([1.0, 0.5], confidence=confidence)
