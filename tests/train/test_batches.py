"""Batches: what is learned from, what is refused, and where the sampled tokens are."""

import math
import statistics
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import TokenError
from assay.train.batches import (
    EPSILON,
    RolloutGroup,
    TrainedRollout,
    build_micro_batch,
    compute_advantages,
    compute_step_size,
    has_signal,
    is_truncated,
    pack_rollouts,
    select_trained_rollouts,
)
from assay.train.grpo_config import GRPOConfig
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    ModelCall,
    Sample,
    Trajectory,
)


def config(**fields: Any) -> GRPOConfig:
    return GRPOConfig(model_name="any", **fields)


def call(prompt: str, completion: str, **fields: Any) -> ModelCall:
    """Letters stand for token ids."""
    ids = {"prompt_ids": tuple(map(ord, prompt)), "completion_ids": tuple(map(ord, completion))}
    logprobs = tuple(-0.5 - n for n in range(len(completion)))
    return ModelCall(**{**ids, "logprobs": logprobs, **fields})


def rollout(score: float | None, *calls: ModelCall, **fields: Any) -> Sample:
    sample = Sample(
        prompt="?",
        rollout_id="r",
        trajectory=Trajectory(calls=list(calls or [call("ab", "cd")])),
        score=EvaluateResult(score=score),
        **fields,
    )
    return sample


def broken() -> Sample:
    failure = Failure.of(RuntimeError("no"), Boundary.ENVIRONMENT)
    return rollout(1.0, failure=failure)


def test_failed_and_unjudged_rollouts_are_in_the_group_but_not_learned_from() -> None:
    group = RolloutGroup((rollout(1.0), rollout(None), broken(), rollout(0.0)))

    learned = select_trained_rollouts([group], config(advantage="mean"))

    assert group.rewards == (1.0, None, None, 0.0)
    assert [each.advantage for each in learned] == [0.5, -0.5]


def test_the_samples_of_one_rollout_stay_one_rollout() -> None:
    forked = rollout(1.0, call("ab", "cd"), call("xy", "z"))
    group = RolloutGroup((forked, rollout(0.0)))

    first, _ = select_trained_rollouts([group], config(advantage="mean"))

    assert [part.tokens for part in first.parts] == [list(map(ord, t)) for t in ("abcd", "xyz")]
    assert first.advantage == 0.5
    assert first.trained_tokens == 3
    assert compute_step_size([first], config()).rollouts == 1


@pytest.mark.parametrize(("choice", "learned"), [("keep", 2), ("drop", 0), ("resample", 0)])
def test_groups_without_differences_are_kept_or_dropped_as_told(choice: str, learned: int) -> None:
    group = RolloutGroup((rollout(1.0), rollout(1.0)))

    assert len(select_trained_rollouts([group], config(zero_variance=choice))) == learned


def test_truncated_rollouts_count_for_the_mean_and_may_be_left_out_of_the_loss() -> None:
    cut = rollout(1.0, call("ab", "cd", finish_reason="length"))
    group = RolloutGroup((cut, rollout(0.0)))

    assert is_truncated(cut)
    assert len(select_trained_rollouts([group], config())) == 2
    (only,) = select_trained_rollouts([group], config(advantage="mean", drop_truncated=True))
    assert only.advantage == -0.5


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (rollout(1.0, call("ab", "cd", logprobs=None)), "no recorded logprobs"),
        (
            rollout(1.0, call("ab", "cd", completion_ids=None)),
            "the engine returned no `completion_ids`",
        ),
        (
            rollout(
                1.0,
                tokens=[1, 2],
                loss_mask=[0.0, 1.0],
                metadata={"token_source": "retokenized"},
            ),
            "made from text, not recorded",
        ),
        (rollout(1.0, tokens=[1, 2], loss_mask=[1.0, 1.0]), "the mask is on at the first token"),
    ],
)
def test_tokens_that_nobody_sampled_are_refused(sample: Sample, problem: str) -> None:
    with pytest.raises(TokenError, match=problem):
        select_trained_rollouts([RolloutGroup((sample, rollout(0.0)))], config())


def test_they_are_taken_when_told_so_without_a_weight_of_importance() -> None:
    made_of_text = rollout(
        1.0, tokens=[7, 8, 9], loss_mask=[0.0, 1.0, 1.0], metadata={"token_source": "retokenized"}
    )
    settings = config(allow_unrecorded_tokens=True)

    learned = select_trained_rollouts([RolloutGroup((made_of_text, rollout(0.0)))], settings)
    batch = build_micro_batch(learned, compute_step_size(learned, settings), settings, device="cpu")

    assert [math.isnan(each) for each in batch.recorded_N.tolist()] == [True, True, False, False]


def trained(*lengths: int) -> list[TrainedRollout]:
    return [
        TrainedRollout((Sample(tokens=[1] * length, loss_mask=[0.0] + [1.0] * (length - 1)),), 1.0)
        for length in lengths
    ]


def test_passes_hold_rollouts_of_like_length_within_the_limit() -> None:
    passes = pack_rollouts(trained(3, 10, 4, 9, 2), 20)

    assert [[each.longest for each in some] for some in passes] == [[10, 9], [4, 3, 2]]
    assert pack_rollouts([], 20) == []


def test_a_rollout_over_the_limit_goes_alone() -> None:
    assert [len(some) for some in pack_rollouts(trained(50, 60, 5), 20)] == [1, 1, 1]


def test_the_parts_of_a_rollout_are_never_parted() -> None:
    long = TrainedRollout(tuple(each.parts[0] for each in trained(9, 9, 9)), 1.0)

    passes = pack_rollouts([long, *trained(3)], 20)

    assert [[len(each.parts) for each in some] for some in passes] == [[3], [1]]


def test_the_tensors_point_at_the_sampled_tokens_and_nothing_else() -> None:
    learned = select_trained_rollouts(
        [
            RolloutGroup(
                (rollout(1.0, call("ab", "cd"), call("xyz", "w")), rollout(0.0, call("q", "rst")))
            )
        ],
        config(advantage="mean"),
    )
    settings = config(loss_type="grpo")

    batch = build_micro_batch(learned, compute_step_size(learned, settings), settings, device="cpu")

    targets = batch.ids_RT[batch.row_N, batch.place_N].tolist()
    assert "".join(map(chr, targets)) == "cdwrst"
    assert batch.ids_RT.shape == (3, 4)
    assert batch.rollout_N.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.advantages_N.tolist() == [0.5] * 3 + [-0.5] * 3
    assert batch.recorded_N.tolist() == [-0.5, -1.5, -0.5, -0.5, -1.5, -2.5]
    assert batch.scale_N.tolist() == pytest.approx([1 / 6] * 6)
    assert batch.first_place == 1
    assert batch.ids_RT.dtype == torch.int64


def test_passes_are_bounded_by_the_tokens_that_have_logits() -> None:
    def answered(prompt: int, answer: int) -> TrainedRollout:
        sample = Sample(
            prompt="?",
            tokens=[1] * (prompt + answer),
            loss_mask=[0.0] * prompt + [1.0] * answer,
            rollout_log_probs=[0.0] * (prompt + answer),
        )
        return TrainedRollout((sample,), 1.0)

    rollouts = [answered(90, 9) for _ in range(6)]

    # Each has logits at ten places: those of its answer, and the one before.
    assert [len(some) for some in pack_rollouts(rollouts, 10_000, 30)] == [3, 3]
    assert [len(some) for some in pack_rollouts(rollouts, 10_000, 29)] == [2, 2, 2]
    assert [len(some) for some in pack_rollouts(rollouts, 10_000, 1)] == [1] * 6
    assert [len(some) for some in pack_rollouts(rollouts, 10_000)] == [6]


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
