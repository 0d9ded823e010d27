"""The GRPO loss on flat vectors: one entry for each token that a rollout sampled.

A suffix names the axis: `_N` runs over tokens, `_R` over rollouts. Samples that were cut from one
rollout share its entry of `_R`, so that they count as the one rollout they are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .grpo_config import GRPOConfig, LossType

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenTerms:
    """The inputs of the loss of some tokens."""

    logprobs_N: "Tensor"
    """Under the policy that is trained; the only part with a gradient."""

    old_N: "Tensor"
    """Under the policy as it was when the step began."""

    recorded_N: "Tensor"
    """As the engine gave them when it sampled; NaN where it gave none."""

    reference_N: "Tensor | None"
    """Under the model as it was before training."""

    advantages_N: "Tensor"
    scale_N: "Tensor"
    """Each token's share in the loss of the whole step; see `compute_token_scale`."""

    rollout_N: "Tensor"
    """Which rollout each token belongs to, counted from 0."""

    rollouts: int


@dataclass(frozen=True)
class StepSize:
    """The denominators of a step's loss."""

    rollouts: int
    tokens: int
    length_constant: int


def compute_token_scale(loss_type: LossType, rollout_tokens: int, step: StepSize) -> float:
    """The factor of one token's loss, for a rollout that sampled `rollout_tokens` of them.

    The factors do not depend on how a step is cut into passes: gradients just add up.
    """
    if loss_type == "grpo":
        return 1 / (rollout_tokens * step.rollouts)
    if loss_type == "dr_grpo":
        return 1 / (step.rollouts * step.length_constant)
    return 1 / step.tokens


def compute_grpo_loss(terms: TokenTerms, config: GRPOConfig) -> "tuple[Tensor, LossSums]":
    """Return these tokens' part of the step's loss, and the sums for its metrics."""
    low, high, cap = 1 - config.clip_low, 1 + config.clip_high, config.importance_cap
    ratio_N = compute_policy_ratio(terms, config.importance_level)
    weight_N = compute_importance_weight(terms, cap=cap)
    loss_N = -compute_clipped_gain(ratio_N, terms.advantages_N, low=low, high=high) * weight_N
    kl_N = None
    if terms.reference_N is not None:
        kl_N = compute_divergence(terms.logprobs_N, terms.reference_N)
        if config.beta > 0:
            loss_N = loss_N + config.beta * kl_N
    loss = (loss_N * terms.scale_N).sum()
    ratio_N = ratio_N.detach()
    # Where the clipped gain is the lower one, it does not depend on the ratio: no gradient.
    clipped_N = ((terms.advantages_N > 0) & (ratio_N > high)) | (
        (terms.advantages_N < 0) & (ratio_N < low)
    )
    # Weights are never negative, so that without a cap none counts as capped.
    capped_N = weight_N < 0 if cap is None else weight_N >= cap
    return loss, LossSums(
        tokens=len(ratio_N),
        ratio=float(ratio_N.sum()),
        ratio_max=float(ratio_N.max()),
        clipped=float(clipped_N.sum()),
        weight=float(weight_N.sum()),
        weight_capped=float(capped_N.sum()),
        kl=None if kl_N is None else float(kl_N.detach().sum()),
    )


def compute_policy_ratio(terms: TokenTerms, level: Literal["token", "sequence"]) -> "Tensor":
    """How much likelier the policy makes each token than it did; over its rollout with `sequence`.

    That of a rollout is the geometric mean of its tokens' ratios, all its parts together.
    """
    log_N = terms.logprobs_N - terms.old_N
    if level == "token":
        return log_N.exp()
    sum_R = log_N.new_zeros(terms.rollouts).index_add(0, terms.rollout_N, log_N)
    count_R = terms.rollout_N.bincount(minlength=terms.rollouts).clamp(min=1)
    return (sum_R / count_R)[terms.rollout_N].exp()


def compute_clipped_gain(
    ratio_N: "Tensor", advantages_N: "Tensor", *, low: float, high: float
) -> "Tensor":
    """Return the lower of the plain and the clipped gain, as in PPO."""
    return (ratio_N * advantages_N).minimum(ratio_N.clamp(low, high) * advantages_N)


def compute_importance_weight(terms: TokenTerms, *, cap: float | None) -> "Tensor":
    """Return the weights that correct for differences between the engine and the trained model.

    1.0 without a cap, and for tokens without a recorded logprob. Has no gradient.
    """
    if cap is None:
        return terms.old_N.new_ones(terms.old_N.shape)
    known_N = ~terms.recorded_N.isnan()
    # Replaced before the sum: one NaN would make the loss of the whole step NaN.
    log_N = (terms.old_N - terms.recorded_N).where(known_N, terms.old_N.new_zeros(()))
    return log_N.exp().clamp(max=cap).detach()


def compute_divergence(logprobs_N: "Tensor", reference_N: "Tensor") -> "Tensor":
    """Estimate the KL divergence from the reference: unbiased and never negative."""
    # The k3 estimator: lower variance than the log ratio itself.
    log_N = reference_N - logprobs_N
    return log_N.exp() - log_N - 1


@dataclass(frozen=True)
class LossSums:
    """Sums over tokens, to be added up over the passes of a step."""

    tokens: int
    ratio: float
    ratio_max: float
    clipped: float
    """Tokens whose gradient the clipping took away."""

    weight: float
    weight_capped: float
    kl: float | None

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(
            tokens=self.tokens + other.tokens,
            ratio=self.ratio + other.ratio,
            ratio_max=max(self.ratio_max, other.ratio_max),
            clipped=self.clipped + other.clipped,
            weight=self.weight + other.weight,
            weight_capped=self.weight_capped + other.weight_capped,
            kl=None if self.kl is None or other.kl is None else self.kl + other.kl,
        )
