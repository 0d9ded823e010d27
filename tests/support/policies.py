"""Rollouts that a tiny model sampled, and the gradients that a policy makes of them."""

from collections.abc import Sequence
from typing import Any

import torch

from assay.providers.in_process import LocalModel, Sampling
from assay.train import GRPOConfig
from assay.train.batches import TrainedRollout
from assay.train.policy import Policy
from assay.types import Sample

TEMPERATURE = 0.7


def config(**fields: Any) -> GRPOConfig:
    settings: dict[str, Any] = {"learning_rate": 1e-2, "temperature": TEMPERATURE}
    return GRPOConfig(model_name="any", **{**settings, **fields})


def sampled(model: LocalModel, count: int = 6) -> list[TrainedRollout]:
    """Rollouts that the model really sampled, of different lengths."""
    prompts = [[5 + n] * (2 + n) for n in range(count)]
    sampling = [Sampling(temperature=TEMPERATURE, max_tokens=2 + n % 4) for n in range(count)]
    made = model.generate(prompts, sampling, seeds=list(range(count)))
    return [
        TrainedRollout(
            (
                Sample(
                    tokens=[*prompt, *each.ids],
                    loss_mask=[0.0] * len(prompt) + [1.0] * len(each.ids),
                    rollout_log_probs=[0.0] * len(prompt) + list(each.logprobs),
                ),
            ),
            advantage=1.0 if number % 2 else -0.5,
        )
        for number, (prompt, each) in enumerate(zip(prompts, made, strict=True))
    ]


def gradient(policy: Policy, rollouts: Sequence[TrainedRollout]) -> Any:
    """The gradient of one update, in one vector."""
    policy.update(rollouts, learning_rate=1e-2)
    return torch.cat([each.grad.flatten() for each in policy.weights.trained.values()])
