"""A small GRPO training whose rollouts a server makes."""

from pathlib import Path
from typing import Any

from assay.train.grpo import GRPOResult, grpo_train
from assay.train.grpo_config import GRPOConfig
from assay.train.training_session import TrainingSession
from lamps import share_of_a
from word_models import word_model

LETTERS = [{"id": str(number), "prompt": f"say a {number}"} for number in range(8)]


def served_config(folder: Path, url: str | None, **fields: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "model_name": "letters",
        "output": folder / "out",
        "num_steps": 3,
        "prompts_per_step": 2,
        "group_size": 4,
        "max_tokens": 6,
        "learning_rate": 1e-2,
        "server": url,
    }
    return GRPOConfig(**{**settings, **fields})


def train_served(
    folder: Path, url: str | None, *, session: TrainingSession | None = None, **fields: Any
) -> GRPOResult:
    config = served_config(folder, url, **fields)
    return grpo_train(
        config,
        LETTERS,
        share_of_a,
        model=word_model([], seed=config.seed),
        session=session or TrainingSession(store=folder / "store.db"),
    )
