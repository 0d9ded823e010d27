"""From scored rollouts to tensors: advantages, the tokens that are learned from, and the passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, nan, sqrt
from typing import TYPE_CHECKING, Any

from assay.errors import TokenError
from assay.types import NOISE, Sample

from .grpo_config import GRPOConfig, Scaling
from .losses import StepSize, compute_token_scale
from .shared_prompts import SharedPrompts, Span, share_prompts
from .token_spans import check_tokens, has_sampled_turn, token_source, tokenize_sample

if TYPE_CHECKING:
    from torch import Tensor

# Added to the deviation, as in TRL: otherwise tiny differences would get unbounded advantages.
EPSILON = 1e-4


@dataclass(frozen=True)
class RolloutGroup:
    """The rollouts of one prompt in one step, including those that failed."""

    samples: tuple[Sample, ...]

    @cached_property
    def rewards(self) -> tuple[float | None, ...]:
        """None for a rollout that failed or was not judged."""
        return tuple(
            None if sample.failure is not None else sample.reward for sample in self.samples
        )

    @property
    def has_signal(self) -> bool:
        return has_signal(self.rewards)


def compute_advantages(
    rewards: Sequence[float | None], *, scaling: Scaling = "std"
) -> list[float | None]:
    """One advantage for each member of a group; None for a member whose reward is unknown.

    Unknown rewards are in neither the mean nor the deviation. The deviation is that of a sample,
    with one degree of freedom less. A group without differences has advantages of 0.
    """
    known = [reward for reward in rewards if reward is not None]
    if not has_signal(rewards):
        return [None if reward is None else 0.0 for reward in rewards]
    mean = fsum(known) / len(known)
    divisor = 1.0
    if scaling == "std":
        squares = fsum((reward - mean) ** 2 for reward in known)
        divisor = sqrt(squares / (len(known) - 1)) + EPSILON
    return [None if reward is None else (reward - mean) / divisor for reward in rewards]


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether a group teaches anything: at least two known rewards that differ."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return False
    lowest, highest = min(known), max(known)
    return highest - lowest > NOISE * max(1.0, abs(lowest), abs(highest))


@dataclass(frozen=True)
class TrainedRollout:
    """One rollout to learn from: all samples that were cut from it, and its advantage."""

    parts: tuple[Sample, ...]
    advantage: float

    @cached_property
    def trained_tokens(self) -> int:
        return sum(int(sum(part.loss_mask)) for part in self.parts)

    @cached_property
    def longest(self) -> int:
        return max(len(part.tokens) for part in self.parts)

    @cached_property
    def first_place(self) -> int:
        """No part has a token that is trained on before this place."""
        return min(next((n for n, on in enumerate(part.loss_mask) if on), 1) for part in self.parts)


def select_trained_rollouts(
    groups: Sequence[RolloutGroup], config: GRPOConfig
) -> list[TrainedRollout]:
    """Select the rollouts for the loss of a step. Raises `TokenError` for unusable tokens.

    Failed and unscored rollouts are excluded, and those that the configuration drops. So are
    rollouts without an answer of the model, which must not be all of them.
    """
    _check_answered(groups)
    selected = []
    for group in groups:
        if config.zero_variance != "keep" and not group.has_signal:
            continue
        found = compute_advantages(group.rewards, scaling=config.advantage)
        for sample, advantage in zip(group.samples, found, strict=True):
            if advantage is None or (config.drop_truncated and is_truncated(sample)):
                continue
            if not _has_tokens(sample):
                continue
            rollout = TrainedRollout(_tokenize_parts(sample, config), advantage)
            # Without a token to train on, it would still count as a rollout of the step.
            if rollout.trained_tokens:
                selected.append(rollout)
    return selected


def _check_answered(groups: Sequence[RolloutGroup]) -> None:
    """Raise `TokenError` if no scored rollout has an answer of the model."""
    # Before groups are dropped: rewards without the model are often all equal.
    scored = [
        sample
        for group in groups
        for sample, reward in zip(group.samples, group.rewards, strict=True)
        if reward is not None
    ]
    if scored and not any(map(_has_tokens, scored)):
        raise TokenError(
            f"the model that is trained answered in none of the {len(scored)} rollouts of a step",
            hint="the agent's calls must go to OPENAI_BASE_URL or ANTHROPIC_BASE_URL of its "
            "environment, or to `base_url` or `client` of its context",
        )


def _has_tokens(sample: Sample) -> bool:
    return bool(sample.tokens) or has_sampled_turn(sample)


def is_truncated(sample: Sample) -> bool:
    """Whether a limit cut the rollout, or one of its answers, short."""
    trajectory = sample.trajectory
    if trajectory is None:
        return False
    # The token limit of an answer ends a turn, not necessarily the rollout.
    return trajectory.truncated or any(
        call.finish_reason == "length" and call.purpose == "turn" for call in trajectory.calls
    )


def _tokenize_parts(sample: Sample, config: GRPOConfig) -> tuple[Sample, ...]:
    parts = (sample,) if sample.tokens else tuple(tokenize_sample(sample))
    for part in parts:
        check_tokens(part)
        if config.allow_unrecorded_tokens:
            continue
        if token_source(part) != "recorded":
            raise TokenError(
                "the tokens of the sample were made from text, not recorded",
                where=f"sample {part.id}",
                hint="use an engine that returns token ids, or set allow_unrecorded_tokens=True",
            )
        if part.rollout_log_probs is None and config.importance_cap is not None:
            raise TokenError(
                "the tokens of the sample have no recorded logprobs",
                where=f"sample {part.id}",
                hint="request logprobs from the engine, or set allow_unrecorded_tokens=True",
            )
    return parts


def pack_rollouts(
    rollouts: Sequence[TrainedRollout], max_tokens: int, max_logits: int | None = None
) -> list[list[TrainedRollout]]:
    """Rollouts in passes of at most `max_tokens`, padding included; one may be larger alone.

    At most `max_logits` of the tokens have logits: those from the first that is trained on.
    Rollouts of like length go together. The parts of one are never in different passes.
    """
    passes: list[list[TrainedRollout]] = []
    rows = longest = first = 0
    # Sorting is stable: rollouts of one length stay in their order.
    for rollout in sorted(rollouts, key=lambda each: -each.longest):
        # The longest row comes first, so it decides the padding of its pass.
        rows += len(rollout.parts)
        first = min(first, rollout.first_place)
        too_many = max_logits is not None and rows * (longest - first + 1) > max_logits
        if not passes or rows * longest > max_tokens or too_many:
            passes.append([])
            rows, longest = len(rollout.parts), rollout.longest
            first = rollout.first_place
        passes[-1].append(rollout)
    return passes


@dataclass(frozen=True)
class MicroBatch:
    """The tensors of one pass. `_RT` is indexed by sample, then token; `_N` by trained token."""

    ids_RT: "Tensor"
    row_N: "Tensor"
    place_N: "Tensor"
    """The position of each trained token in its sample; never 0."""

    recorded_N: "Tensor"
    advantages_N: "Tensor"
    scale_N: "Tensor"
    rollout_N: "Tensor"
    rollouts: int
    first_place: int
    """Nothing before this place is trained on."""

    shared: SharedPrompts | None = None
    """The same samples in two parts, where their prompts are worth reading apart."""


def compute_step_size(rollouts: Sequence[TrainedRollout], config: GRPOConfig) -> StepSize:
    return StepSize(
        rollouts=len(rollouts),
        tokens=sum(rollout.trained_tokens for rollout in rollouts),
        length_constant=config.length_constant or config.max_tokens,
    )


def build_micro_batch(
    rollouts: Sequence[TrainedRollout], size: StepSize, config: GRPOConfig, *, device: Any
) -> MicroBatch:
    """Tensors for one pass over these rollouts, padded on the right."""
    import torch

    rows = [part.tokens for rollout in rollouts for part in rollout.parts]
    width = max(map(len, rows))
    # Lists with one entry for each trained token.
    whole: tuple[list[int], list[int], list[int]] = ([], [], [])
    real: tuple[list[float], list[float], list[float]] = ([], [], [])
    # For each sample, the positions of the logits of its trained tokens.
    spans: list[Span] = []
    for number, rollout in enumerate(rollouts):
        scale = compute_token_scale(config.loss_type, rollout.trained_tokens, size)
        for part in rollout.parts:
            known = part.rollout_log_probs
            places = [place for place, counts in enumerate(part.loss_mask) if counts]
            count = len(places)
            whole[0].extend([len(spans)] * count)
            whole[1].extend(places)
            whole[2].extend([number] * count)
            real[0].extend([nan] * count if known is None else [known[at] for at in places])
            real[1].extend([rollout.advantage] * count)
            real[2].extend([scale] * count)
            # The logits that predict a token are at the position before it.
            spans.append((places[0] - 1, places[-1]) if places else (1, 1))
    row_N, place_N, rollout_N = torch.tensor(whole, device=device)
    recorded_N, advantages_N, scale_N = torch.tensor(real, device=device)
    return MicroBatch(
        ids_RT=torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device),
        row_N=row_N,
        place_N=place_N,
        recorded_N=recorded_N,
        advantages_N=advantages_N,
        scale_N=scale_N,
        rollout_N=rollout_N,
        rollouts=len(rollouts),
        first_place=min(whole[1]),
        shared=share_prompts(rows, spans, device=device),
    )
