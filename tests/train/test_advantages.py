"""Advantages: what a group's rewards come to, with and without unknown ones."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.train.advantages import EPSILON, compute_advantages, has_signal

Rewards = list[float | None]


def test_rewards_are_held_against_the_mean_and_the_sample_deviation() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0]

    found = compute_advantages(rewards)

    mean, deviation = statistics.mean(rewards), statistics.stdev(rewards)
    assert found == pytest.approx([(each - mean) / (deviation + EPSILON) for each in rewards])


def test_without_scaling_only_the_mean_is_taken_away() -> None:
    assert compute_advantages([2.0, 0.0, 4.0], scaling="mean") == [0.0, -2.0, 2.0]


@pytest.mark.parametrize("scaling", ["std", "mean"])
def test_an_unknown_reward_is_neither_zero_nor_part_of_the_mean(scaling: object) -> None:
    with_unknown = compute_advantages([1.0, None, 0.0], scaling=scaling)  # type: ignore[arg-type]
    without = compute_advantages([1.0, 0.0], scaling=scaling)  # type: ignore[arg-type]

    assert with_unknown == [without[0], None, without[1]]


@pytest.mark.parametrize(
    "rewards", [[0.5, 0.5, 0.5], [0.1 + 0.2, 0.3], [1.0], [None, None], [1.0, None], []]
)
def test_a_group_without_differences_teaches_nothing(rewards: Rewards) -> None:
    found = compute_advantages(rewards)

    assert not has_signal(rewards)
    assert found == [None if reward is None else 0.0 for reward in rewards]


def test_two_different_rewards_are_a_signal() -> None:
    assert has_signal([None, 0.0, 1e-3])


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=12), st.sampled_from(["std", "mean"]))
def test_advantages_are_finite_sum_to_nothing_and_keep_the_order(
    rewards: Rewards, scaling: object
) -> None:
    found = compute_advantages(rewards, scaling=scaling)  # type: ignore[arg-type]

    known = [each for each in found if each is not None]
    assert [each is None for each in found] == [each is None for each in rewards]
    assert all(map(math.isfinite, known))
    assert sum(known) == pytest.approx(0.0, abs=1e-6 * max([1.0, *map(abs, known)]))
    pairs = [(r, a) for r, a in zip(rewards, found, strict=True) if r is not None and a is not None]
    assert [a for _, a in sorted(pairs)] == sorted(a for _, a in pairs)
