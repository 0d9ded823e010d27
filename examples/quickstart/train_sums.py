"""Sums of two numbers below 20, for a model of a million random weights.

`assay quickstart --train` trains it and measures it before and after. Only the second training:

    assay train grpo examples/quickstart/train_sums.py
"""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.providers import LocalModel
from assay.runner import EvalConfig
from assay.train import GRPOConfig, SFTConfig, character_model, sft_train
from assay.types import Endpoint, EvaluateResult, Sample

HELD_OUT_SUMS = 100
"""Sums for evaluation only; training never sees them."""

DEMONSTRATIONS_PER_SUM = 8
WRONG_SHARE = 0.35
"""The share of demonstrations with a wrong answer, so that GRPO has something to improve."""

SFT_STEPS = 180
GRPO_STEPS = 150
REPEATS = 4
"""Sampled answers to each held-out sum."""

OPERAND_LIMIT = 20
# One token per character, and the end token.
DEMONSTRATION_TOKENS = len("07+15=22") + 1
# Two digits and the end token, plus one: a longer answer must be seen to be wrong.
MAX_ANSWER_TOKENS = 4


def score_fn(sample: Sample) -> EvaluateResult:
    """Score whether the answer is the sum. Evaluation and training use the same function."""
    right = sample.response == sample.ground_truth
    return EvaluateResult(
        score=float(right), reason=f"answered {sample.response!r}, the sum is {sample.ground_truth}"
    )


class Sums:
    """All sums, split by the seed into held-out and training sums."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        rows = [build_row(a, b) for a in range(OPERAND_LIMIT) for b in range(OPERAND_LIMIT)]
        random.Random(seed).shuffle(rows)
        self.held_out, self.training = rows[:HELD_OUT_SUMS], rows[HELD_OUT_SUMS:]

    def build_demonstrations(self) -> list[dict[str, Any]]:
        """Return answered rows for SFT; `right` is whether the answer is the sum."""
        chance = random.Random(f"{self.seed}:demonstrations")
        made = []
        for copy in range(DEMONSTRATIONS_PER_SUM):
            for row in self.training:
                right = chance.random() >= WRONG_SHARE
                numbers = (f"{number:02}" for number in range(2 * OPERAND_LIMIT - 1))
                others = [number for number in numbers if number != row["answer"]]
                text = row["answer"] if right else chance.choice(others)
                messages = [*row["messages"], {"role": "assistant", "content": text}]
                made.append({"id": f"{row['id']}#{copy}", "messages": messages, "right": right})
        return made

    def build_model(self) -> LocalModel:
        """Build a model with random weights, which reads and writes single characters."""
        return character_model("0123456789+=", seed=self.seed)


def build_row(a: int, b: int) -> dict[str, Any]:
    question = {"role": "user", "content": f"{a:02}+{b:02}="}
    return {"id": f"{a:02}+{b:02}", "messages": [question], "answer": f"{a + b:02}"}


def build_sft_config(output: Path, *, steps: int = SFT_STEPS, seed: int = 0) -> SFTConfig:
    """Configure SFT on batches of 64 demonstrations."""
    return SFTConfig(
        model_name="a model of characters",
        output=output,
        num_steps=steps,
        batch_tokens=64 * DEMONSTRATION_TOKENS,
        learning_rate=1e-3,
        warmup_steps=min(20, steps - 1),
        # Strong weight decay makes the model generalise instead of memorising demonstrations.
        weight_decay=1.0,
        seed=seed,
    )


def build_grpo_config(
    model: str, output: Path, *, steps: int = GRPO_STEPS, seed: int = 0
) -> GRPOConfig:
    """Configure GRPO on 16 sums per step, with 8 answers to each."""
    return GRPOConfig(
        model_name=model,
        output=output,
        name="quickstart-grpo",
        num_steps=steps,
        prompts_per_step=16,
        group_size=8,
        max_tokens=MAX_ANSWER_TOKENS,
        # Above the evaluation's temperature: only answers that are sampled can be reinforced.
        temperature=1.2,
        learning_rate=2e-4,
        schedule="linear",
        # Groups of equal scores have no gradient, and cost time.
        zero_variance="drop",
        checkpoint_every=50,
        seed=seed,
    )


def build_eval_config(model: str, name: str, *, sampled: bool, seed: int = 0) -> EvalConfig:
    """Configure an evaluation on held-out sums, with sampled or greedy answers."""
    return EvalConfig(
        name=f"quickstart-{name}-{'sampled' if sampled else 'greedy'}",
        endpoint=Endpoint(
            provider="local",
            model=model,
            temperature=1.0 if sampled else 0.0,
            max_tokens=MAX_ANSWER_TOKENS,
        ),
        score_fn=score_fn,
        repeats=REPEATS if sampled else 1,
        seed=seed,
    )


def model() -> LocalModel:
    """Train a model on the demonstrations; `assay train grpo` continues with it."""
    sums = Sums()
    local = sums.build_model()
    with TemporaryDirectory() as folder:
        config = build_sft_config(Path(folder) / "sft")
        sft_train(config, sums.build_demonstrations(), model=local)
    return local


config = build_grpo_config("sums", Path("sums"))
prompts = Sums().training
