"""The properties of tokens and masks on what the gateway recorded of agents that fork."""

import pytest

from assay.train import tokenize_sample
from assay.train.batches import TrainedRollout, build_micro_batch, compute_step_size
from assay.types import Sample
from mask_properties import broken, calls_of
from policies import config
from wire_rollouts import forked_rollout

NAMES = ("qwen2.5", "llama3", "qwen3, thinking")
SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_property_holds_over_all_branches(name: str, seed: int) -> None:
    rollout = forked_rollout(name, seed)

    made = tokenize_sample(rollout)

    assert broken(name, rollout, made) == set()
    assert len(made) > 1


def test_the_rollouts_fork_in_every_way() -> None:
    rollouts = [forked_rollout(name, seed) for name in NAMES for seed in SEEDS]
    found = [each.trajectory for each in rollouts if each.trajectory is not None]

    reasons = {branch.reason for each in found for branch in each.branches}
    purposes = {call.purpose for each in found for call in each.calls}

    assert {"root", "subagent", "compaction", "edited_history", "resampled"} <= reasons
    assert purposes == {"turn", "title", "summary", "probe", "retry"}


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_beside_the_conversation_are_not_trained(seed: int) -> None:
    rollout = forked_rollout("qwen2.5", seed)
    assert rollout.trajectory is not None
    # Probes and retries ask again for what a turn has asked for.
    others = [call for call in rollout.trajectory.calls if call.purpose in ("title", "summary")]

    made = tokenize_sample(rollout)

    whole = [[*(call.prompt_ids or ()), *(call.completion_ids or ())] for call in others]
    assert not any(sample.tokens == tokens for sample in made for tokens in whole if tokens)
    trained = sum(sum(sample.loss_mask) for sample in made)
    assert trained == sum(len(call.completion_ids or ()) for call in calls_of(rollout))


def test_answers_that_a_branch_repeats_are_flagged_if_they_count_again() -> None:
    def train_history(sample: Sample, earlier: set[tuple[int, ...]]) -> Sample:
        mask = list(sample.loss_mask)
        for ids in earlier:
            for start in range(len(sample.tokens) - len(ids)):
                if tuple(sample.tokens[start : start + len(ids)]) == ids:
                    mask[start : start + len(ids)] = [1.0] * len(ids)
        return sample.model_copy(update={"loss_mask": mask})

    rollout = forked_rollout("qwen2.5", 1)
    made = tokenize_sample(rollout)
    sampled = {call.completion_ids for call in calls_of(rollout) if call.completion_ids}

    flagged = broken("qwen2.5", rollout, [train_history(sample, sampled) for sample in made])

    assert {"P1", "P2", "P7"} <= flagged


def test_a_rollout_weighs_the_same_however_often_it_forks() -> None:
    settings = config(loss_type="grpo")
    parts = tokenize_sample(forked_rollout("qwen2.5", 2))
    rollouts = [TrainedRollout(tuple(parts), 1.0), TrainedRollout(tuple(parts[:1]), 1.0)]

    size = compute_step_size(rollouts, settings)
    batch = build_micro_batch(rollouts, size, settings, device="cpu")

    assert len(parts) > 1
    weights = [float(batch.scale_N[batch.rollout_N == number].sum()) for number in range(2)]
    assert weights == pytest.approx([0.5, 0.5])
