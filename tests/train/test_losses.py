"""The loss against a second computation in plain Python, and what each setting changes in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from assay.train.grpo_config import GRPOConfig
from assay.train.losses import (
    StepSize,
    TokenTerms,
    compute_clipped_gain,
    compute_divergence,
    compute_grpo_loss,
    compute_importance_weight,
    compute_policy_ratio,
    compute_token_scale,
)


@dataclass(frozen=True)
class Token:
    """One trained token in plain numbers."""

    rollout: int
    new: float
    old: float
    recorded: float
    reference: float
    advantage: float


TOKENS = (
    Token(0, -1.0, -1.3, -1.2, -0.9, 1.5),
    Token(0, -0.2, -0.1, -0.1, -0.3, 1.5),
    Token(0, -2.0, -1.1, -3.0, -2.5, 1.5),
    Token(1, -0.7, -0.7, -0.6, -0.7, -0.8),
    Token(1, -1.9, -0.4, -0.4, -1.0, -0.8),
    Token(2, -0.05, -2.0, -2.2, -0.1, -0.7),
)


def config(**fields: Any) -> GRPOConfig:
    return GRPOConfig(model_name="any", **fields)


def size(settings: GRPOConfig, tokens: Sequence[Token] = TOKENS) -> StepSize:
    return StepSize(
        rollouts=len({token.rollout for token in tokens}),
        tokens=len(tokens),
        length_constant=settings.length_constant or settings.max_tokens,
    )


def terms(settings: GRPOConfig, tokens: Sequence[Token] = TOKENS) -> TokenTerms:
    def column(name: str) -> Any:
        return torch.tensor([getattr(token, name) for token in tokens], dtype=torch.float64)

    lengths = [sum(other.rollout == token.rollout for other in tokens) for token in tokens]
    scale = [compute_token_scale(settings.loss_type, each, size(settings)) for each in lengths]
    return TokenTerms(
        logprobs_N=column("new").requires_grad_(True),
        old_N=column("old"),
        recorded_N=column("recorded"),
        reference_N=column("reference"),
        advantages_N=column("advantage"),
        scale_N=torch.tensor(scale, dtype=torch.float64),
        rollout_N=torch.tensor([token.rollout for token in tokens]),
        rollouts=max(token.rollout for token in tokens) + 1,
    )


def by_hand(settings: GRPOConfig) -> float:
    """The same loss, rollout by rollout and token by token."""
    rollouts = [
        [token for token in TOKENS if token.rollout == number]
        for number in sorted({token.rollout for token in TOKENS})
    ]
    sums = []
    for tokens in rollouts:
        mean_log = sum(token.new - token.old for token in tokens) / len(tokens)
        total = 0.0
        for token in tokens:
            log = token.new - token.old if settings.importance_level == "token" else mean_log
            ratio = math.exp(log)
            bounded = min(max(ratio, 1 - settings.clip_low), 1 + settings.clip_high)
            gain = min(ratio * token.advantage, bounded * token.advantage)
            weight = 1.0
            if settings.importance_cap is not None:
                weight = min(math.exp(token.old - token.recorded), settings.importance_cap)
            away = token.reference - token.new
            total += -gain * weight + settings.beta * (math.exp(away) - away - 1)
        sums.append(total)
    if settings.loss_type == "grpo":
        means = [total / len(tokens) for total, tokens in zip(sums, rollouts, strict=True)]
        return sum(means) / len(means)
    if settings.loss_type == "dr_grpo":
        constant = settings.length_constant or settings.max_tokens
        return sum(sums) / (len(rollouts) * constant)
    return sum(sums) / sum(map(len, rollouts))


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_loss_is_what_it_comes_to_by_hand(
    loss_type: str, level: str, cap: float | None, beta: float
) -> None:
    settings = config(
        loss_type=loss_type,
        importance_level=level,
        importance_cap=cap,
        beta=beta,
        clip_high=0.28,
        max_tokens=5,
    )

    loss, sums = compute_grpo_loss(terms(settings), settings)

    assert float(loss.detach()) == pytest.approx(by_hand(settings), rel=1e-12)
    assert sums.tokens == len(TOKENS)


def test_the_kinds_of_loss_differ_in_what_a_token_of_a_long_rollout_weighs() -> None:
    step = StepSize(rollouts=4, tokens=100, length_constant=50)

    assert compute_token_scale("grpo", 40, step) == 1 / 160
    assert compute_token_scale("grpo", 2, step) == 1 / 8
    assert compute_token_scale("dapo", 40, step) == compute_token_scale("dapo", 2, step) == 1 / 100
    assert (
        compute_token_scale("dr_grpo", 40, step)
        == compute_token_scale("dr_grpo", 2, step)
        == 1 / 200
    )


@pytest.mark.parametrize(
    ("loss_type", "weights"),
    [("grpo", (0.5, 0.5)), ("dr_grpo", (0.1, 0.3)), ("dapo", (0.25, 0.75))],
)
def test_a_rollout_weighs_once_or_by_its_tokens_and_never_by_its_branches(
    loss_type: Any, weights: tuple[float, float]
) -> None:
    """The numbers of docs/grpo.md: ten tokens in one branch, thirty in three."""
    branches = ((10,), (10, 10, 10))
    step = StepSize(rollouts=2, tokens=40, length_constant=50)

    found = [
        sum(tokens * compute_token_scale(loss_type, sum(rollout), step) for tokens in rollout)
        for rollout in branches
    ]

    assert found == pytest.approx(weights)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.19, 2.0, 2.38, 2.0),
        (1.31, 2.0, 2.6, 0.0),
        (0.1, 2.0, 0.2, 2.0),
        (1.0, -2.0, -2.0, -2.0),
        (0.81, -2.0, -1.62, -2.0),
        (0.79, -2.0, -1.6, 0.0),
        (5.0, -2.0, -10.0, -2.0),
    ],
)
def test_clipping_takes_the_gradient_away_only_where_the_bound_is_passed(
    ratio: float, advantage: float, gain: float, slope: float
) -> None:
    ratio_N = torch.tensor([ratio], dtype=torch.float64, requires_grad=True)

    found = compute_clipped_gain(
        ratio_N, torch.tensor([advantage], dtype=torch.float64), low=0.8, high=1.3
    )
    found.sum().backward()

    assert float(found.detach()) == pytest.approx(gain)
    assert ratio_N.grad is not None
    assert float(ratio_N.grad) == pytest.approx(slope)


def test_clipped_tokens_are_counted() -> None:
    settings = config(clip_low=0.2, clip_high=0.2)

    _, sums = compute_grpo_loss(terms(settings), settings)

    # exp(0.3) > 1.2 with a positive advantage, exp(-1.5) < 0.8 with a negative one.
    assert sums.clipped == 2
    assert sums.ratio_max == pytest.approx(math.exp(1.95))


def test_a_policy_that_did_not_change_has_no_ratio_but_one_and_is_never_clipped() -> None:
    settings = config(clip_low=0.0, clip_high=0.0)
    same = [Token(t.rollout, t.old, t.old, t.old, t.old, t.advantage) for t in TOKENS]

    _, sums = compute_grpo_loss(terms(settings, same), settings)

    assert (sums.ratio, sums.clipped, sums.weight, sums.kl) == (6.0, 0.0, 6.0, 0.0)


def test_the_ratio_of_a_rollout_is_the_mean_of_all_its_tokens_however_it_was_cut() -> None:
    settings = config(importance_level="sequence")

    ratio_N = compute_policy_ratio(terms(settings), "sequence").detach()

    first = math.exp((0.3 - 0.1 - 0.9) / 3)
    assert ratio_N.tolist() == pytest.approx(
        [first] * 3 + [math.exp(-1.5 / 2)] * 2 + [math.exp(1.95)]
    )


def test_the_importance_weight_is_capped_has_no_gradient_and_is_one_where_nothing_is_known() -> (
    None
):
    tokens = [
        Token(0, -1.0, -1.0, -1.2, 0.0, 1.0),
        Token(0, -1.0, -1.0, -9.0, 0.0, 1.0),
        Token(0, -1.0, -1.0, -0.5, 0.0, 1.0),
        Token(0, -1.0, -1.0, math.nan, 0.0, 1.0),
    ]
    settings = config(importance_cap=3.0)

    weight_N = compute_importance_weight(terms(settings, tokens), cap=3.0)
    loss, sums = compute_grpo_loss(terms(settings, tokens), settings)

    assert weight_N.tolist() == pytest.approx([math.exp(0.2), 3.0, math.exp(-0.5), 1.0])
    assert not weight_N.requires_grad
    assert sums.weight_capped == 1
    assert math.isfinite(float(loss.detach()))
    assert compute_importance_weight(terms(settings, tokens), cap=None).tolist() == [1.0] * 4


def test_the_divergence_is_zero_for_equal_models_and_never_negative() -> None:
    same = torch.tensor([-0.3, -2.0])
    other = torch.tensor([-0.1, -4.0])

    assert compute_divergence(same, same).tolist() == [0.0, 0.0]
    assert bool((compute_divergence(same, other) > 0).all())


def test_the_gradient_is_finite_and_only_that_of_the_policy() -> None:
    settings = config(beta=0.1)
    made = terms(settings)

    loss, _ = compute_grpo_loss(made, settings)
    loss.backward()

    assert made.logprobs_N.grad is not None
    assert bool(made.logprobs_N.grad.isfinite().all())
    assert made.old_N.grad is None
