"""When numbers count as equal, and when a score reaches a threshold."""

NOISE = 1e-9
"""Scores that differ by no more are equal: three votes of 0.7 have a mean of 0.6999999999999998."""


def reaches_threshold(score: float, threshold: float, *, low_is_good: bool = False) -> bool:
    """Whether a score reaches a threshold: rounding does not count."""
    return (threshold - score if low_is_good else score - threshold) >= -NOISE
