"""Repeats dealt anew: exact against every dealing, and no false alarms where repeats differ."""

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy
import pytest

from assay.stats import sign_flip_test
from assay.stats.permutation import RepeatPools
from simulated import chances, is_worse, paired, scores

Pair = tuple[Sequence[float], Sequence[float]]


def by_hand(pairs: list[Pair], equal: Sequence[float] = ()) -> float:
    """Twice the share of all dealings that end at least as far to the observed side."""
    options = [[-d, d] for d in equal]
    for a, b in pairs:
        pool = [*a, *b]
        places = range(len(pool))
        options.append(
            [
                sum(pool[place] for place in places if place not in of_a) / len(b)
                - sum(pool[place] for place in of_a) / len(a)
                for of_a in combinations(places, len(a))
            ]
        )
    sums = [math.fsum(each) for each in product(*options)]
    observed = math.fsum(equal) + sum(sum(b) / len(b) - sum(a) / len(a) for a, b in pairs)
    side = 1 if observed >= 0 else -1
    return min(1.0, 2 * sum(side * each >= side * observed - 1e-9 for each in sums) / len(sums))


def pools(pairs: list[Pair]) -> RepeatPools:
    found = RepeatPools()
    for a, b in pairs:
        found.add(a, b)
    return found


PAIRS: dict[str, list[Pair]] = {
    "one against three": [([0.0], [1.0, 1.0, 1.0]), ([0.0], [1.0, 0.0, 1.0]), ([1.0], [1.0] * 3)],
    "three against one": [([1.0, 1.0, 1.0], [0.0]), ([1.0, 0.0, 1.0], [0.0]), ([1.0] * 3, [1.0])],
    "fractions": [([0.9], [0.1, 0.3, 0.2]), ([0.8, 0.7], [0.4]), ([0.5], [0.6, 0.1])],
    "both kinds": [([1.0], [0.0, 0.0]), ([0.5, 0.25], [0.75]), ([1.0, 0.5, 1.0], [0.5, 0.0])],
}


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("equal", [(), (0.5, -0.25, -1.0)])
def test_the_p_value_is_that_of_every_dealing(pairs: list[Pair], equal: tuple[float, ...]) -> None:
    found = pools(pairs).test(equal)

    assert found.p_value == pytest.approx(by_hand(pairs, equal), abs=0.03)
    assert found.method == "permutation of repeats, 10000 draws, seed 0"


def test_turning_the_sides_round_turns_nothing_else() -> None:
    turned = [(b, a) for a, b in PAIRS["both kinds"]]

    p_value = pools(turned).test(()).p_value

    assert p_value == pytest.approx(pools(PAIRS["both kinds"]).test(()).p_value, abs=0.03)


def test_repeats_that_are_all_equal_are_no_evidence() -> None:
    found = pools([([1.0], [1.0, 1.0])] * 30).test([0.0])

    assert (found.p_value, found.method) == (1.0, "no differences")


def test_a_seed_gives_the_same_answer_each_time() -> None:
    pairs: list[Pair] = [([1.0], [0.0, 1.0, 1.0])] * 20

    assert pools(pairs).test((), seed=3) == pools(pairs).test((), seed=3)
    assert pools(pairs).test((), seed=3) != pools(pairs).test((), seed=4)


def test_very_many_different_repeats_are_approximated_without_keeping_them() -> None:
    generator = numpy.random.default_rng(4)
    found = RepeatPools()
    for a, b, c in generator.random((25_000, 3)).tolist():
        found.add([a], [b, c])

    test = found.test(())

    assert test.method == "permutation of repeats, normal approximation"
    assert test.p_value is not None
    assert test.p_value > 0.01
    assert found._pools is None


@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "mixed"])
@pytest.mark.parametrize(
    ("n", "p", "repeats"),
    [(10, 0.9, (1, 20)), (50, 0.98, (1, 20)), (100, 0.97, (1, 20)), (50, 0.5, (1, 5))],
)
def test_an_unchanged_system_is_rarely_called_worse_whatever_the_repeats(
    n: int, p: float, repeats: tuple[int, int], mixed: bool
) -> None:
    generator = numpy.random.default_rng([n, *repeats])
    alarms = 0
    for _ in range(100):
        likely = chances(generator, n, p, mixed=mixed)
        a, b = (scores(generator, likely, count) for count in repeats)
        alarms += is_worse(paired(a, b)) + is_worse(paired(b, a))

    assert alarms / 200 <= 0.045


def test_flipped_signs_alone_would_have_raised_false_alarms() -> None:
    generator = numpy.random.default_rng(1)
    alarms = 0
    for _ in range(150):
        likely = chances(generator, 50, 0.98)
        a, b = (scores(generator, likely, count) for count in (1, 20))
        differences = paired(a, b).differences
        p_value = sign_flip_test(differences).p_value
        alarms += p_value is not None and p_value <= 0.05 and sum(differences) < 0

    assert alarms / 150 >= 0.2


def test_samples_that_changed_either_way_are_no_regression_on_average() -> None:
    """Repeats dealt anew, alone, would call this worse too often."""
    generator = numpy.random.default_rng(2)
    alarms = 0
    for _ in range(100):
        before = numpy.full(40, 0.5)
        after = before + 0.3 * generator.choice([-1, 1], 40)
        alarms += is_worse(paired(scores(generator, before, 11), scores(generator, after, 12)))

    assert alarms / 100 <= 0.06


@pytest.mark.parametrize("repeats", [(1, 20), (20, 1)])
def test_a_true_fall_is_found_though_repeats_differ(repeats: tuple[int, int]) -> None:
    generator = numpy.random.default_rng(5)
    found = sum(
        is_worse(
            paired(
                scores(generator, numpy.full(100, 0.9), repeats[0]),
                scores(generator, numpy.full(100, 0.75), repeats[1]),
            )
        )
        for _ in range(60)
    )

    assert found / 60 >= 0.85


@pytest.mark.parametrize("repeats", [(1, 5), (1, 20), (20, 1)])
@pytest.mark.parametrize(("p", "fall"), [(0.97, 0.0), (0.9, 0.2), (0.5, 0.1)])
def test_the_interval_holds_its_confidence_though_repeats_differ(
    repeats: tuple[int, int], p: float, fall: float
) -> None:
    generator = numpy.random.default_rng(6)
    held = 0
    for _ in range(150):
        found = paired(
            scores(generator, numpy.full(40, p), repeats[0]),
            scores(generator, numpy.full(40, p - fall), repeats[1]),
        ).interval(0.95, None)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= -fall <= found.high

    assert held / 150 >= 0.93
