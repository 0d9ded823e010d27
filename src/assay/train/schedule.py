"""The learning rate of a training: an optional warm-up, then a schedule."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def compute_learning_rate(
    step: int, *, of: int, highest: float, schedule: Schedule, warmup_steps: int
) -> float:
    """Return the rate of a step; steps count from 1."""
    if step <= warmup_steps:
        return highest * step / (warmup_steps + 1)
    if schedule == "constant":
        return highest
    done = (step - 1 - warmup_steps) / max(1, of - warmup_steps)
    if schedule == "linear":
        return highest * (1 - done)
    return highest * (1 + math.cos(math.pi * done)) / 2
