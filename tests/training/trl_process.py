"""One of several processes that train the lamp model together; prints what it found as JSON.

python tests/training/trl_process.py FOLDER STEPS RESUME
"""

import json
import sys
from pathlib import Path

import torch

from assay.training.grpo import grpo_train
from assay.training.session import TrainingSession
from training.lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said


def main(folder: Path, steps: int, resume: bool) -> None:
    torch.set_num_threads(1)
    model = lamp_model()
    result = grpo_train(
        lamp_config(folder, backend="trl", num_steps=steps, prompts_per_step=2, device="cpu"),
        PROMPTS,
        looked_and_said,
        Lamp,
        model=model,
        session=TrainingSession(store=folder / "store.db", resume=resume),
    )
    learned = {
        name: float(weight.detach().double().sum())
        for name, weight in model.model.named_parameters()
    }
    found = {"run": result.run_id, "learned": learned, "interrupted": result.interrupted}
    print(json.dumps({**found, "losses": [step.loss for step in result.steps]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume")
