"""Rollouts for TRL: rows of tokens in the order of its prompts, without gaps."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

from assay.errors import TrainingError
from assay.types import Sample

from .batches import RolloutGroup, TrainedRollout
from .grpo_config import GRPOConfig


@dataclass(frozen=True)
class TrlRows:
    """The rows of one step for TRL.

    First one row for each rollout, trained on or not; then the further parts of rollouts whose
    history was rewritten; then masked fillers, until all passes have equally many rows.
    """

    trained: int
    """How many rollouts are learned from, in all processes."""

    teaches: bool
    """Whether any of them has an advantage."""

    prompt_ids: list[list[int]] = field(default_factory=list)
    completion_ids: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)
    """NaN where the engine gave none."""

    env_mask: list[list[int]] = field(default_factory=list)
    """1 where a recorded call sampled the token, else 0."""

    reward: list[float | None] = field(default_factory=list)
    """One for each rollout."""

    advantages: list[float] = field(default_factory=list)
    """One for each row: that of its rollout."""

    @property
    def count(self) -> int:
        return len(self.advantages)

    def part(self, number: int, count: int) -> "TrlRows":
        """Return the part of one of `count` processes."""
        rows, rewards = self.count // count, len(self.reward) // count
        mine = slice(number * rows, (number + 1) * rows)
        return replace(
            self,
            prompt_ids=self.prompt_ids[mine],
            completion_ids=self.completion_ids[mine],
            logprobs=self.logprobs[mine],
            env_mask=self.env_mask[mine],
            advantages=self.advantages[mine],
            reward=self.reward[number * rewards : (number + 1) * rewards],
        )

    def plain(self) -> dict[str, Any]:
        """Return the rows in the format of `rollout_func`; `reward` goes to the reward function."""
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "env_mask": self.env_mask,
            "reward": self.reward,
        }


def build_trl_rows(
    groups: Sequence[RolloutGroup],
    rollouts: Sequence[TrainedRollout],
    config: GRPOConfig,
    *,
    passes: int,
    filler: int,
) -> TrlRows:
    """All rollouts of a step; `rollouts` are those of them that are learned from.

    The others are one masked token, `filler`: TRL counts on full batches. Raises `TrainingError`
    for a rewritten history where TRL would weigh it wrongly.
    """
    rows = TrlRows(len(rollouts), any(rollout.advantage for rollout in rollouts))
    trained = {rollout.parts[0].rollout_id: rollout for rollout in rollouts}
    unfit = None
    if config.loss_type == "grpo":
        unfit = "loss_type='grpo'"
    elif config.importance_level == "sequence":
        unfit = "importance_level='sequence'"
    further: list[tuple[Sample, float]] = []
    for group in groups:
        for sample, reward in zip(group.samples, group.rewards, strict=True):
            rows.reward.append(reward)
            rollout = trained.get(sample.rollout_id)
            if rollout is None:
                _append_filler(rows, filler)
                continue
            # A part may consist of a call that sampled nothing.
            parts = [part for part in rollout.parts if any(part.loss_mask)]
            # With losses per token two rows of one rollout are correct; per sequence they count
            # twice.
            if unfit is not None and len(parts) > 1:
                raise TrainingError(
                    f"the rollout's history was rewritten into {len(parts)} sequences of tokens; "
                    f"with {unfit} TRL would count each as a rollout of its own",
                    where=f"sample {parts[0].id}",
                    hint="set loss_type='dapo' and importance_level='token', or backend='local'",
                )
            _append_part(rows, parts[0], rollout.advantage)
            further += [(part, rollout.advantage) for part in parts[1:]]
    for part, advantage in further:
        _append_part(rows, part, advantage)
    while rows.count % passes:
        _append_filler(rows, filler)
    return rows


def _append_part(rows: TrlRows, part: Sample, advantage: float) -> None:
    # For TRL a prompt ends at the first sampled token; `env_mask` excludes later context.
    first, known = part.loss_mask.index(1.0), part.rollout_log_probs
    rows.advantages.append(advantage)
    rows.prompt_ids.append(part.tokens[:first])
    rows.completion_ids.append(part.tokens[first:])
    rows.env_mask.append([int(value) for value in part.loss_mask[first:]])
    rows.logprobs.append([nan] * (len(part.tokens) - first) if known is None else known[first:])


def _append_filler(rows: TrlRows, filler: int) -> None:
    rows.advantages.append(0.0)
    rows.prompt_ids.append([filler])
    rows.completion_ids.append([filler])
    rows.env_mask.append([0])
    rows.logprobs.append([0.0])
