"""How much better a rollout did than the others of its group. Pure arithmetic on rewards."""

import math
from collections.abc import Sequence

from .grpo_config import Scaling

# Added to the deviation, as in TRL: otherwise tiny differences would get unbounded advantages.
EPSILON = 1e-4

# Rewards that differ only by rounding count as equal.
_NOISE = 1e-9


def compute_advantages(
    rewards: Sequence[float | None], *, scaling: Scaling = "std"
) -> list[float | None]:
    """One advantage for each member of a group; None for a member whose reward is unknown.

    Unknown rewards are in neither the mean nor the deviation. The deviation is that of a sample,
    with one degree of freedom less. A group without differences has advantages of 0.
    """
    known = [reward for reward in rewards if reward is not None]
    if not has_signal(rewards):
        return [None if reward is None else 0.0 for reward in rewards]
    mean = math.fsum(known) / len(known)
    divisor = 1.0
    if scaling == "std":
        squares = math.fsum((reward - mean) ** 2 for reward in known)
        divisor = math.sqrt(squares / (len(known) - 1)) + EPSILON
    return [None if reward is None else (reward - mean) / divisor for reward in rewards]


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether a group teaches anything: at least two known rewards that differ."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return False
    lowest, highest = min(known), max(known)
    return highest - lowest > _NOISE * max(1.0, abs(lowest), abs(highest))
