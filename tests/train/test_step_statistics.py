"""The metrics of a step."""

from typing import Any

import pytest

from assay.train.batches import RolloutGroup, TrainedRollout
from assay.train.losses import LossSums
from assay.train.policy import UpdateStats
from assay.train.rollout_collector import StepRollouts
from assay.train.step_statistics import Update, compute_step_metrics
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    ModelCall,
    Sample,
    Trajectory,
)


def rollout(score: float | None, **fields: Any) -> Sample:
    calls = [ModelCall(prompt_ids=(1,), completion_ids=(2, 3)) for _ in range(2)]
    trajectory = Trajectory(calls=calls)
    return Sample(trajectory=trajectory, score=EvaluateResult(score=score), **fields)


def failed(boundary: Boundary) -> Sample:
    return Sample(failure=Failure.of(RuntimeError("no"), boundary), score=EvaluateResult())


def collected(*groups: tuple[Sample, ...], **fields: Any) -> StepRollouts:
    given = {"position": 0, "seconds": 2.0, "found": 0, "resampled": 0, **fields}
    return StepRollouts(groups=[RolloutGroup(group) for group in groups], **given)


NOTHING = Update(rollouts=(), stats=None, learning_rate=0.1, seconds=1.0)


def test_every_rollout_is_valid_invalid_or_failed_and_only_valid_ones_have_a_mean() -> None:
    found = compute_step_metrics(
        3,
        collected(
            (rollout(1.0), rollout(0.0), rollout(None)),
            (rollout(0.5), failed(Boundary.SCORER), failed(Boundary.ENDPOINT)),
            (failed(Boundary.SCORER), rollout(None), rollout(None)),
        ),
        NOTHING,
    )

    assert (found.rollouts, found.valid, found.invalid) == (9, 3, 3)
    assert found.failed == {"scorer": 2, "endpoint": 1}
    assert found.reward == 0.5
    assert found.reward_low is not None
    assert found.reward_high is not None
    assert found.reward_low < 0.5 < found.reward_high
    assert found.zero_variance == pytest.approx(2 / 3)
    assert (found.response_tokens, found.turns) == (4.0, 2.0)
    assert found.tokens_per_s == 6 * 4 / 2


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    found = compute_step_metrics(
        1, collected((failed(Boundary.SCORER), failed(Boundary.SCORER))), NOTHING
    )

    assert found.reward is found.reward_low is found.response_tokens is found.tokens_per_s is None
    assert found.loss is found.kl is found.entropy is found.grad_norm is None
    assert not found.updated


def test_rollouts_that_were_found_say_nothing_about_speed() -> None:
    assert (
        compute_step_metrics(1, collected((rollout(1.0),), found=1), NOTHING).tokens_per_s is None
    )


def test_a_failed_call_is_no_turn() -> None:
    retried = rollout(1.0)
    assert retried.trajectory is not None
    retried.trajectory.calls.insert(0, ModelCall(error="HTTP 503"))

    assert compute_step_metrics(1, collected((retried,)), NOTHING).turns == 2.0


def test_an_update_gives_means_over_its_tokens() -> None:
    sums = LossSums(
        tokens=4, ratio=6.0, ratio_max=2.5, clipped=1.0, weight=2.0, weight_capped=0.0, kl=0.8
    )
    update = Update(
        rollouts=[TrainedRollout((Sample(tokens=[1, 2], loss_mask=[0.0, 1.0]),), 1.0)],
        stats=UpdateStats(loss=-0.3, grad_norm=1.7, entropy=2.2, sums=sums),
        learning_rate=0.1,
        seconds=0.5,
    )

    found = compute_step_metrics(1, collected((rollout(1.0), rollout(0.0))), update)

    assert found.updated
    assert (found.ratio, found.ratio_max, found.clip_fraction) == (1.5, 2.5, 0.25)
    assert (found.importance_weight, found.kl) == (0.5, 0.2)
    assert (found.loss, found.entropy, found.grad_norm) == (-0.3, 2.2, 1.7)
    assert (found.trained_rollouts, found.trained_tokens) == (1, 1)
