"""One of several processes that train the lamp model together; writes what it found as JSON.

torchrun --nproc-per-node 2 tests/support/trl_process.py FOLDER
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from assay.train.grpo import grpo_train
from assay.train.training_session import TrainingSession
from assay.types import Sample
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said

SCORED: list[str] = []
"""The rollouts that this process scored."""


def counted(sample: Sample) -> float:
    SCORED.append(f"{sample.metadata['training_step']} {sample.rollout_id}")
    return looked_and_said(sample)


def found_by_training(folder: Path) -> dict[str, Any]:
    """What a process knows after two steps, each of which is evaluated."""
    model = lamp_model()
    SCORED.clear()
    result = grpo_train(
        lamp_config(folder, backend="trl", prompts_per_step=2, device="cpu", eval_every=1),
        PROMPTS,
        counted,
        Lamp,
        eval_dataset=[{**PROMPTS[0], "id": "held"}],
        model=model,
        session=TrainingSession(store=folder / "store.db"),
    )
    return {
        "run": result.run_id,
        "losses": [step.loss for step in result.steps],
        "rewards": result.rewards,
        "evaluations": [each.score for each in result.evaluations],
        "scored": sorted(SCORED),
        "learned": {
            name: float(weight.detach().double().sum())
            for name, weight in model.model.named_parameters()
        },
        "follows": result.follows,
        "interrupted": result.interrupted,
        "written": result.model_path is not None and result.model_path.exists(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = json.dumps(found_by_training(folder))
    (folder / f"process-{os.environ['RANK']}.json").write_text(found)
