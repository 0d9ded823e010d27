"""On one frozen batch, the loss and the gradients of the local loop are those of TRL."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.providers.in_process import LocalModel
from assay.train.batches import TrainedRollout, build_micro_batch, compute_step_size
from assay.train.grpo_config import GRPOConfig
from assay.train.losses import TokenTerms, compute_grpo_loss
from assay.train.policy import Policy, compute_token_logprobs
from assay.train.trl_trainer import make_trainer
from assay.types import Sample
from word_models import word_model

LENGTHS = [(5, 7), (3, 1), (6, 12), (2, 4)]
"""Tokens of each rollout: before it begins, and after."""

ADVANTAGES = [1.3, -0.4, 0.7, -1.1]


@dataclass(frozen=True)
class Frozen:
    """One batch, as the local loop takes it, and what every token was before."""

    rollouts: list[TrainedRollout]
    old: list[list[float]]
    reference: list[list[float]]


def frozen(local: LocalModel) -> Frozen:
    """Random tokens with tool tokens among them, and old logprobs that are off by up to 0.5."""
    dice = random.Random(3)
    rollouts, old, reference = [], [], []
    for number, (before, after) in enumerate(LENGTHS):
        tokens = [dice.randrange(len(local.tokenizer)) for _ in range(before + after)]
        mask = [0.0] * before + [1.0] + [float(dice.random() < 0.7) for _ in range(after - 1)]
        part = Sample(
            id=str(number), tokens=tokens, loss_mask=mask, rollout_log_probs=[-1.0] * len(tokens)
        )
        rollouts.append(TrainedRollout((part,), ADVANTAGES[number]))
        now = own_logprobs(local, tokens)
        old.append([value + dice.uniform(-0.5, 0.5) for value in now])
        reference.append([value + dice.uniform(-0.3, 0.3) for value in now])
    return Frozen(rollouts, old, reference)


def own_logprobs(local: LocalModel, tokens: list[int]) -> list[float]:
    """Of each token after the first, the first being 0."""
    with torch.no_grad():
        logprobs = local.model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1)
    found = logprobs[range(len(tokens) - 1), tokens[1:]]
    return [0.0, *found.tolist()]


def local_loss(policy: Policy, batch: Frozen, config: GRPOConfig) -> Any:
    flat = build_micro_batch(
        batch.rollouts, compute_step_size(batch.rollouts, config), config, device="cpu"
    )
    logprobs_N, _ = compute_token_logprobs(policy.local.model, flat, config.temperature)
    places = list(zip(flat.row_N.tolist(), flat.place_N.tolist(), strict=True))
    terms = TokenTerms(
        logprobs_N=logprobs_N,
        old_N=torch.tensor([batch.old[row][place] for row, place in places]),
        recorded_N=flat.recorded_N,
        reference_N=torch.tensor([batch.reference[row][place] for row, place in places]),
        advantages_N=flat.advantages_N,
        scale_N=flat.scale_N,
        rollout_N=flat.rollout_N,
        rollouts=flat.rollouts,
    )
    loss, sums = compute_grpo_loss(terms, config)
    assert 0 < sums.clipped < sums.tokens
    return loss


def trl_batch(batch: Frozen) -> dict[str, Any]:
    """The same as TRL keeps it: prompts padded on the left, completions on the right."""
    before, after = (max(sizes) for sizes in zip(*LENGTHS, strict=True))

    def after_prompts(rows: list[list[Any]]) -> torch.Tensor:
        return torch.tensor(
            [
                row[start:] + [0] * (after - len(row[start:]))
                for row, (start, _) in zip(rows, LENGTHS, strict=True)
            ]
        )

    parts = [rollout.parts[0] for rollout in batch.rollouts]
    masks = after_prompts([part.loss_mask for part in parts]).long()
    return {
        "prompt_ids": torch.tensor(
            [[0] * (before - n) + p.tokens[:n] for p, (n, _) in zip(parts, LENGTHS, strict=True)]
        ),
        "prompt_mask": torch.tensor([[0] * (before - n) + [1] * n for n, _ in LENGTHS]),
        "completion_ids": after_prompts([part.tokens for part in parts]),
        "completion_mask": after_prompts([[1] * len(part.tokens) for part in parts]),
        "tool_mask": masks,
        "advantages": torch.tensor(ADVANTAGES),
        "old_per_token_logps": after_prompts(batch.old),
        "ref_per_token_logps": after_prompts(batch.reference),
        "num_items_in_batch": masks.sum(),
        "rollout_share": torch.tensor(1.0),
    }


def gradients(policy: Policy, loss: Any) -> dict[str, Any]:
    policy.weights.zero_grad()
    loss.backward()
    found = policy.local.model.named_parameters()
    return {name: weight.grad.clone() for name, weight in found if weight.grad is not None}


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_loss_and_gradients_equal_those_of_trl(
    loss_type: str, beta: float, level: str, tmp_path: Path
) -> None:
    config = GRPOConfig.model_validate(
        {
            "model_name": "frozen",
            "backend": "trl",
            "prompts_per_step": 2,
            "group_size": 2,
            "max_tokens": 12,
            "loss_type": loss_type,
            "beta": beta,
            "importance_level": level,
            "clip_low": 0.1,
            "clip_high": 0.15,
            "importance_cap": None,
            "temperature": 1.0,
        }
    )
    policy = Policy(word_model(["yes", "no"]), config)
    batch = frozen(policy.local)
    mine = local_loss(policy, batch, config)
    my_gradients = gradients(policy, mine)
    trainer = make_trainer(config, policy, lambda *_: {}, folder=tmp_path)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1

    theirs = trainer.compute_loss(trainer.model, trl_batch(batch))

    their_gradients = gradients(policy, theirs)
    torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)
    assert my_gradients.keys() == their_gradients.keys()
    for name, gradient in my_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], rtol=1e-4, atol=1e-6, msg=name)
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in my_gradients.values())
