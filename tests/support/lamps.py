"""A small task with a tool, and trainings on it in one line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.agents import Limits
from assay.environments import ToolEnvironment, tool
from assay.providers.in_process import LocalModel
from assay.store import Store
from assay.train.grpo import GRPOResult, grpo_train
from assay.train.grpo_config import GRPOConfig
from assay.train.step_statistics import StepMetrics
from assay.train.training_session import TrainingSession
from assay.types import Sample
from word_models import calling, word_model

COLOURS = ("red", "blue", "green")
PROMPTS = [
    {
        "id": f"lamp-{number}",
        "messages": [{"role": "user", "content": "lamp?"}],
        "answer": COLOURS[number % 3],
    }
    for number in range(6)
]


class Lamp(ToolEnvironment):
    """Its colour is what the sample says; a tool tells it."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self._colour = str(sample.ground_truth)

    @tool
    def look(self) -> str:
        """Look at the lamp."""
        return self._colour


def looked_and_said(sample: Sample) -> float:
    """Half for looking, half for saying what was seen."""
    if not any(message.role == "tool" for message in sample.messages):
        return 0.0
    return 1.0 if sample.response.strip() == sample.ground_truth else 0.5


def lamp_model(seed: int = 0) -> LocalModel:
    """Looks about one time in five."""
    return word_model([calling("look"), *COLOURS], seed=seed, bias=5.0)


def lamp_config(folder: Path, **fields: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "model_name": "lamps",
        "num_steps": 2,
        "output": folder / "out",
        "prompts_per_step": 3,
        "group_size": 4,
        "max_tokens": 3,
        "limits": Limits(max_turns=2),
        "learning_rate": 3e-3,
    }
    return GRPOConfig(**{**settings, **fields})


def trained(
    folder: Path,
    *,
    score_fn: Any = looked_and_said,
    environment: Any = Lamp,
    prompts: Sequence[Any] = PROMPTS,
    session: TrainingSession | None = None,
    **fields: Any,
) -> GRPOResult:
    """A short training of a fresh model, recorded in the folder."""
    session = session or TrainingSession(store=folder / "store.db")
    config = lamp_config(folder, **fields)
    model = lamp_model(config.seed)
    return grpo_train(config, prompts, score_fn, environment, model=model, session=session)


TIMES = {"rollout_s", "update_s", "tokens_per_s", "found"}


def numbers(steps: Sequence[StepMetrics]) -> list[dict[str, Any]]:
    """All of the metrics but how long it took."""
    return [step.model_dump(exclude=TIMES) for step in steps]


def steps_kept(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a folder's training, which its file and its store tell alike."""
    lines = (folder / "out" / "metrics.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    with Store.open(folder / "store.db") as store:
        rows = store.run().steps()
    assert [row.metrics for row in rows] == written
    assert [row.step for row in rows] == [each["step"] for each in written]
    return written


def weights(model: LocalModel) -> dict[str, Any]:
    """A copy of what a model has learned so far."""
    return {name: weight.detach().clone() for name, weight in model.model.named_parameters()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether weights are equal to the bit."""
    return all(bool((one[name] == other[name]).all()) for name in one)


def share_of_a(sample: Sample) -> float:
    """How much of the answer is the letter a."""
    return sample.response.count("a") / max(1, len(sample.response))
