"""Rollouts as rows for TRL: whole tokens, exact masks, nothing left out and nothing made up."""

import math
from typing import Any

import pytest

from assay.errors import TrainingError
from assay.train.batches import RolloutGroup, select_trained_rollouts
from assay.train.grpo_config import GRPOConfig
from assay.train.trl_rows import TrlRows, build_trl_rows
from assay.types import EvaluateResult, ModelCall, Sample, Trajectory
from make import sample as plain_sample


def config(**fields: Any) -> GRPOConfig:
    return GRPOConfig(model_name="m", backend="trl", group_size=2, prompts_per_step=1, **fields)


def rolled_out(name: str, calls: list[tuple[list[int], list[int]]], score: float | None) -> Sample:
    """A rollout of recorded calls: each a prompt, and what was sampled for it."""
    result = EvaluateResult(score=score or 0.0, is_score_valid=score is not None)
    recorded = [
        ModelCall(
            prompt_ids=tuple(prompt),
            completion_ids=tuple(ids),
            logprobs=tuple(-0.1 * token for token in ids),
        )
        for prompt, ids in calls
    ]
    return plain_sample(id=name).model_copy(
        update={
            "rollout_id": f"{name}#0",
            "trajectory": Trajectory(calls=recorded),
            "score": result,
        }
    )


TWO_TURNS = [([1, 2], [3, 4]), ([1, 2, 3, 4, 9, 9], [5])]
REWRITTEN = [([1, 2], [3, 4]), ([1, 2, 7], [5])]
ONE = [([1, 2], [6])]


def rows_of(*samples: Sample, passes: int = 1, **fields: Any) -> TrlRows:
    groups, settings = [RolloutGroup(samples)], config(**fields)
    rollouts = select_trained_rollouts(groups, settings)
    return build_trl_rows(groups, rollouts, settings, passes=passes, filler=0)


def test_a_row_is_the_first_prompt_and_then_everything_else_with_its_mask() -> None:
    rows = rows_of(rolled_out("a", TWO_TURNS, 1.0), rolled_out("b", ONE, 0.0))

    assert rows.prompt_ids == [[1, 2], [1, 2]]
    assert rows.completion_ids == [[3, 4, 9, 9, 5], [6]]
    assert rows.env_mask == [[1, 1, 0, 0, 1], [1]]
    assert rows.logprobs[0] == pytest.approx([-0.3, -0.4, 0.0, 0.0, -0.5])
    assert rows.reward == [1.0, 0.0]
    assert rows.advantages[0] == -rows.advantages[1] > 0
    assert set(rows.plain()) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "reward"}


def test_a_rollout_without_a_score_is_a_masked_row_without_a_reward() -> None:
    rows = rows_of(rolled_out("a", ONE, 1.0), rolled_out("b", ONE, None))

    assert rows.reward == [1.0, None]
    assert rows.env_mask == [[1], [0]]
    assert rows.completion_ids[1] == [0]
    assert rows.trained == 1


def test_a_rewritten_history_is_a_further_row_with_the_same_advantage() -> None:
    rows = rows_of(rolled_out("a", REWRITTEN, 1.0), rolled_out("b", ONE, 0.0), passes=2)

    assert rows.prompt_ids == [[1, 2], [1, 2], [1, 2, 7], [0]]
    assert rows.completion_ids == [[3, 4], [6], [5], [0]]
    assert rows.env_mask == [[1, 1], [1], [1], [0]]
    assert rows.advantages[2] == rows.advantages[0]
    assert len(rows.reward) == 2
    assert rows.trained == 2


@pytest.mark.parametrize("silent_first", [False, True])
def test_a_part_in_which_nothing_was_sampled_is_no_row(silent_first: bool) -> None:
    spoken, silent = ([1, 2], [3, 4]), ([1, 7], list[int]())
    calls = [silent, spoken] if silent_first else [spoken, silent]

    rows = rows_of(rolled_out("a", calls, 1.0), rolled_out("b", ONE, 0.0), loss_type="grpo")

    assert rows.completion_ids == [[3, 4], [6]]
    assert rows.env_mask == [[1, 1], [1]]


@pytest.mark.parametrize(
    "fields", [{"loss_type": "grpo"}, {"importance_level": "sequence"}], ids=["grpo", "sequence"]
)
def test_a_rewritten_history_is_refused_where_trl_would_count_it_twice(
    fields: dict[str, Any],
) -> None:
    forked, whole = rolled_out("a", REWRITTEN, 1.0), rolled_out("b", ONE, 0.0)

    with pytest.raises(TrainingError, match=r"sample a: .* 2 sequences .*\n.*backend='local'"):
        rows_of(forked, whole, **fields)
    assert rows_of(whole, rolled_out("c", ONE, 1.0), **fields).trained == 2


def test_tokens_without_logprobs_have_none_and_not_zero() -> None:
    bare = rolled_out("a", ONE, 1.0)
    assert bare.trajectory is not None
    calls = [call.model_copy(update={"logprobs": None}) for call in bare.trajectory.calls]
    bare = bare.model_copy(update={"trajectory": Trajectory(calls=calls)})

    rows = rows_of(bare, rolled_out("b", ONE, 0.0), allow_unrecorded_tokens=True)

    assert math.isnan(rows.logprobs[0][0])
    assert rows.teaches


def test_equal_rewards_teach_nothing() -> None:
    assert not rows_of(rolled_out("a", ONE, 1.0), rolled_out("b", ONE, 1.0)).teaches
