"""The task of `assay quickstart --train`: sums of two numbers below 20, for a tiny model."""

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.providers import LocalModel
from assay.runner import EvalConfig
from assay.train import GRPOConfig, SFTConfig, character_model
from assay.types import Endpoint, EvaluateResult, Sample

CHARACTERS = "0123456789+="
HELD_OUT_SUMS = 100
"""Sums for evaluation only; training never sees them."""

DEMONSTRATIONS_PER_SUM = 8
"""Demonstrations of each training sum."""

WRONG_SHARE = 0.35
"""The share of demonstrations with a wrong answer, so that GRPO has something to improve."""

SFT_STEPS = 180
GRPO_STEPS = 150
REPEATS = 4
"""Sampled answers to each held-out sum."""

_OPERAND_LIMIT = 20
_LARGEST_SUM = 2 * (_OPERAND_LIMIT - 1)
# One token per character, and the end token.
_DEMONSTRATION_TOKENS = len("07+15=22") + 1

# Two digits and the end token, plus one: a longer answer must be seen to be wrong.
_MAX_ANSWER_TOKENS = 4

Pair = tuple[int, int]


def score_fn(sample: Sample) -> EvaluateResult:
    """Score whether the answer is the sum. Evaluation and training use the same function."""
    right = sample.response == sample.ground_truth
    return EvaluateResult(
        score=float(right), reason=f"answered {sample.response!r}, the sum is {sample.ground_truth}"
    )


@dataclass(frozen=True)
class Sums:
    """All sums, split by the seed into held-out and training sums."""

    seed: int = 0

    @cached_property
    def _shuffled(self) -> list[Pair]:
        pairs = [(a, b) for a in range(_OPERAND_LIMIT) for b in range(_OPERAND_LIMIT)]
        random.Random(self.seed).shuffle(pairs)
        return pairs

    def held_out(self) -> list[dict[str, Any]]:
        """Return the rows for evaluation."""
        return [_build_sum_row(pair) for pair in self._shuffled[:HELD_OUT_SUMS]]

    def learned(self) -> list[dict[str, Any]]:
        """Return the rows for training."""
        return [_build_sum_row(pair) for pair in self._shuffled[HELD_OUT_SUMS:]]

    def demonstrations(self) -> list[dict[str, Any]]:
        """Return answered rows for SFT; `right` is whether the answer is the sum."""
        chance = random.Random(f"{self.seed}:demonstrations")
        return [
            _build_sum_demonstration(pair, copy, chance)
            for copy in range(DEMONSTRATIONS_PER_SUM)
            for pair in self._shuffled[HELD_OUT_SUMS:]
        ]

    def model(self) -> LocalModel:
        """Build a model with random weights."""
        return character_model(CHARACTERS, seed=self.seed)


def build_sft_config(output: Path, *, steps: int, seed: int) -> SFTConfig:
    """Configure SFT on batches of 64 demonstrations."""
    return SFTConfig(
        model_name="a model of characters",
        output=output,
        steps=steps,
        batch_tokens=64 * _DEMONSTRATION_TOKENS,
        learning_rate=1e-3,
        warmup_steps=min(20, steps - 1),
        # Strong weight decay makes the model generalise instead of memorising demonstrations.
        weight_decay=1.0,
        seed=seed,
    )


def build_grpo_config(model: Path, output: Path, *, steps: int, seed: int) -> GRPOConfig:
    """Configure GRPO on 16 sums per step, with 8 answers to each."""
    return GRPOConfig(
        model_name=str(model),
        output=output,
        name="quickstart-grpo",
        num_steps=steps,
        prompts_per_step=16,
        group_size=8,
        max_tokens=_MAX_ANSWER_TOKENS,
        # Above the evaluation's temperature: only answers that are sampled can be reinforced.
        temperature=1.2,
        learning_rate=2e-4,
        schedule="linear",
        # Groups of equal scores have no gradient, and cost time.
        zero_variance="drop",
        checkpoint_every=50,
        seed=seed,
    )


def build_sums_eval_config(model: Path, name: str, *, sampled: bool, seed: int) -> EvalConfig:
    """Configure an evaluation on held-out sums, with sampled or greedy answers."""
    endpoint = Endpoint(
        provider="local",
        model=str(model),
        temperature=1.0 if sampled else 0.0,
        max_tokens=_MAX_ANSWER_TOKENS,
    )
    return EvalConfig(
        name=f"quickstart-{name}-{'sampled' if sampled else 'greedy'}",
        endpoint=endpoint,
        score_fn=score_fn,
        repeats=REPEATS if sampled else 1,
        seed=seed,
    )


def _build_sum_row(pair: Pair) -> dict[str, Any]:
    a, b = pair
    question = {"role": "user", "content": f"{a:02}+{b:02}="}
    return {"id": f"{a:02}+{b:02}", "messages": [question], "answer": f"{a + b:02}"}


def _build_sum_demonstration(pair: Pair, copy: int, chance: random.Random) -> dict[str, Any]:
    row, right = _build_sum_row(pair), chance.random() >= WRONG_SHARE
    others = [number for number in range(_LARGEST_SUM + 1) if number != sum(pair)]
    text = row["answer"] if right else f"{chance.choice(others):02}"
    answer = {"role": "assistant", "content": text}
    return {"id": f"{row['id']}#{copy}", "messages": [*row["messages"], answer], "right": right}
