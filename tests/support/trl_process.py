"""One of several processes that train the lamp model together; prints what it found as JSON.

python tests/train/trl_process.py FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from assay.train.grpo import grpo_train
from assay.train.training_session import TrainingSession
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said


def found_by_training(folder: Path) -> dict[str, Any]:
    """What a process knows after two steps."""
    model = lamp_model()
    result = grpo_train(
        lamp_config(folder, backend="trl", prompts_per_step=2, device="cpu"),
        PROMPTS,
        looked_and_said,
        Lamp,
        model=model,
        session=TrainingSession(store=folder / "store.db"),
    )
    return {
        "run": result.run_id,
        "losses": [step.loss for step in result.steps],
        "learned": {
            name: float(weight.detach().double().sum())
            for name, weight in model.model.named_parameters()
        },
        "follows": result.follows,
        "written": result.model_path is not None and result.model_path.exists(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(found_by_training(Path(sys.argv[1]))))
