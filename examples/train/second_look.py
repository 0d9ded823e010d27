"""Train the model behind an agent that is a shell script, without changing the script.

`second_look.sh` asks its model for the largest of three digits, then asks "?" and takes the second
answer. The model first sees demonstrations of which most are wrong in one way: they name the first
digit. Then it learns from the scores of the script's answers, which assay records at the wire.

    assay train grpo examples/train/second_look.py
    python examples/train/second_look.py --picture reward.svg
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay.providers import LocalModel
from assay.runner import EvalConfig, evaluate_sync
from assay.stats import Interval, format_interval
from assay.train import (
    GRPOConfig,
    GRPOResult,
    SFTConfig,
    TrainingSession,
    character_model,
    grpo_train,
    sft_train,
)
from assay.types import Endpoint, EvaluateResult, Sample

HELD_OUT = 100
"""Questions for evaluation only; training never sees them."""

RIGHT_SHARE = 0.2
"""The share of right answers in the demonstrations; all others name the first digit."""

# A digit and the end token, plus one: a longer answer must be seen to be wrong.
MAX_ANSWER_TOKENS = 3

agent = f"cmd:sh {Path(__file__).with_suffix('.sh')}"


def score_fn(sample: Sample) -> EvaluateResult:
    """1.0 if the script's answer is the largest digit. Training and evaluation both use it."""
    right = sample.response == sample.ground_truth
    return EvaluateResult(
        score=float(right), reason=f"answered {sample.response!r}, not {sample.ground_truth}"
    )


def flip_coin(sample: Sample) -> EvaluateResult:
    """The control: a score that does not depend on the answer."""
    return EvaluateResult(score=float(random.Random(sample.rollout_id).random() < 0.5))


def build_row(digits: str) -> dict[str, Any]:
    question = {"role": "user", "content": f"{digits}>"}
    return {"id": digits, "messages": [question], "answer": max(digits)}


def split_rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the held-out questions, and those to train on."""
    rows = [build_row(f"{number:03}") for number in range(1000)]
    random.Random("questions").shuffle(rows)
    return rows[:HELD_OUT], rows[HELD_OUT:]


def build_demonstrations(rows: list[dict[str, Any]], copies: int = 2) -> Iterator[dict[str, Any]]:
    """Yield conversations in which both answers are right or name the first digit."""
    chance = random.Random("demonstrations")
    for copy in range(copies):
        for row in rows:
            answers = [
                row["answer"] if chance.random() < RIGHT_SHARE else row["id"][0] for _ in range(2)
            ]
            messages = [
                *row["messages"],
                {"role": "assistant", "content": answers[0]},
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": answers[1]},
            ]
            yield {"id": f"{row['id']}#{copy}", "messages": messages}


def build_sft_config(output: Path, steps: int = 80) -> SFTConfig:
    return SFTConfig(
        model_name="digits",
        output=output,
        num_steps=steps,
        batch_tokens=768,
        learning_rate=3e-3,
        schedule="linear",
        weight_decay=0.1,
    )


def train_on_demonstrations(output: Path) -> LocalModel:
    """A model of some ten thousand weights that does as the demonstrations do."""
    local = character_model("0123456789>?", hidden=48, layers=2, context=32)
    sft_train(build_sft_config(output), list(build_demonstrations(prompts)), model=local)
    return local


def model() -> LocalModel:
    """The model that `assay train grpo` starts with."""
    with tempfile.TemporaryDirectory() as folder:
        return train_on_demonstrations(Path(folder) / "sft")


held_out, prompts = split_rows()
config = GRPOConfig(
    model_name="digits",
    output=Path("second-look"),
    name="second look",
    num_steps=30,
    prompts_per_step=6,
    group_size=6,
    max_tokens=MAX_ANSWER_TOKENS,
    learning_rate=1e-3,
    zero_variance="drop",
)


def train_on_scores(
    start: Path, output: Path, score: Callable[[Sample], EvaluateResult], steps: int
) -> GRPOResult:
    """Train the model in the folder `start`, which stays as it is."""
    settings = config.model_copy(
        update={"model_name": str(start), "output": output, "num_steps": steps}
    )
    session = TrainingSession(store=output.parent / "store.db")
    return grpo_train(settings, prompts, score, agent=agent, session=session)


def measure(model: Path, store: Path, questions: int = HELD_OUT) -> Interval:
    """The share of the script's right answers to held-out questions, at temperature 0."""
    endpoint = Endpoint(
        provider="local", model=str(model), temperature=0.0, max_tokens=MAX_ANSWER_TOKENS
    )
    settings = EvalConfig(
        agent=agent, endpoint=endpoint, score_fn=score_fn, max_samples=questions, concurrency=16
    )
    return evaluate_sync(held_out, settings, store=store).summary.score.interval


def main() -> None:
    """Train on the scores and on the coin, and measure both on questions that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=config.num_steps)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_on_demonstrations(folder / "sft")
        start = folder / "sft" / "model"
        trained = train_on_scores(start, folder / "grpo", score_fn, args.steps)
        train_on_scores(start, folder / "control", flip_coin, args.steps)
        if args.picture is not None:
            args.picture.write_bytes(trained.curve_path.read_bytes())
        for when, path in (
            ("before", start),
            ("after", folder / "grpo" / "model"),
            ("after, with the coin", folder / "control" / "model"),
        ):
            print(f"{when:<22}{format_interval(measure(path, folder / 'store.db'))}")


if __name__ == "__main__":
    main()
