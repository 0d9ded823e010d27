"""From scored rollouts to tensors: which tokens are learned from, and in which pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from typing import TYPE_CHECKING, Any

from assay.errors import TokenError
from assay.types import Sample

from .advantages import compute_advantages, has_signal
from .grpo_config import GRPOConfig
from .losses import StepSize, compute_token_scale
from .shared_prompts import SharedPrompts, Span, share_prompts
from .token_spans import check_tokens, token_source, tokenize_sample

if TYPE_CHECKING:
    from torch import Tensor


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

    Failed and unscored rollouts are excluded, and those that the configuration drops.
    """
    return [rollout for group in groups for rollout in _select_from_group(group, config)]


def _select_from_group(group: RolloutGroup, config: GRPOConfig) -> Iterator[TrainedRollout]:
    if config.zero_variance != "keep" and not group.has_signal:
        return
    found = compute_advantages(group.rewards, scaling=config.advantage)
    for sample, advantage in zip(group.samples, found, strict=True):
        if advantage is None or (config.drop_truncated and is_truncated(sample)):
            continue
        rollout = TrainedRollout(_tokenize_parts(sample, config), advantage)
        if rollout.trained_tokens:
            yield rollout


def is_truncated(sample: Sample) -> bool:
    """Whether a limit cut the rollout, or one of its answers, short."""
    trajectory = sample.trajectory
    if trajectory is None:
        return False
    # The token limit of an answer ends a turn, not necessarily the rollout.
    return trajectory.truncated or any(call.finish_reason == "length" for call in trajectory.calls)


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
    tokens = _list_trained_tokens(rollouts, size, config)
    whole = [tokens.row, tokens.place, tokens.rollout]
    row_N, place_N, rollout_N = torch.tensor(whole, device=device)
    real = [tokens.recorded, tokens.advantage, tokens.scale]
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
        first_place=min(tokens.place),
        shared=share_prompts(rows, tokens.spans, device=device),
    )


@dataclass
class _TokenColumns:
    """Columns with one entry for each trained token."""

    row: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    rollout: list[int] = field(default_factory=list)
    recorded: list[float] = field(default_factory=list)
    advantage: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    """For each sample, the positions of the logits of its trained tokens."""


def _list_trained_tokens(
    rollouts: Sequence[TrainedRollout], size: StepSize, config: GRPOConfig
) -> _TokenColumns:
    tokens, row = _TokenColumns(), 0
    for number, rollout in enumerate(rollouts):
        scale = compute_token_scale(config.loss_type, rollout.trained_tokens, size)
        for part in rollout.parts:
            known = part.rollout_log_probs
            places = [place for place, counts in enumerate(part.loss_mask) if counts]
            count = len(places)
            tokens.row += [row] * count
            tokens.place += places
            tokens.rollout += [number] * count
            tokens.recorded += [nan] * count if known is None else [known[at] for at in places]
            tokens.advantage += [rollout.advantage] * count
            tokens.scale += [scale] * count
            # The logits that predict a token are at the position before it.
            tokens.spans.append((places[0] - 1, places[-1]) if places else (1, 1))
            row += 1
    return tokens
