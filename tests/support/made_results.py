"""Builders of narrow results, so that a test shows only the numbers it is about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """What a store hands out for one result."""

    sample_id: str
    score: float | None
    repeat: int = 0
    valid: bool = True
    boundary: str | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    input_tokens: int | None = 1
    output_tokens: int | None = 1
    latency_s: float | None = 1.0
    cached: bool = False


def run(*scores: float | None) -> list[Result]:
    """One sample for each score, named s0, s1 and so on. None: not judged."""
    return [
        Result(f"s{place}", score, valid=score is not None) for place, score in enumerate(scores)
    ]


def repeated(scores: Mapping[str, Iterable[float | None]]) -> list[Result]:
    """The repeats of each named sample. None: not judged."""
    return [
        Result(sample_id, score, repeat=repeat, valid=score is not None)
        for sample_id, repeats in scores.items()
        for repeat, score in enumerate(repeats)
    ]
