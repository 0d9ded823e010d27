"""Adjust p-values for multiple tests."""

from bisect import bisect_right, insort
from collections.abc import Sequence

from assay.types import NOISE


def adjust_p_values(
    p_values: Sequence[float], *, smallest: Sequence[float] | None = None
) -> list[float]:
    """Return Holm's adjusted p-values.

    They bound the family-wise error rate for any dependence between the tests: the chance that an
    unchanged test gets an adjusted p-value of at most 0.05 is at most 0.05.

    `smallest` are the smallest p-values that each test can give. As Tarone proposed, a p-value is
    multiplied only by the number of tests that can give one as small, so tests in which too few
    samples changed do not weaken the others. Without them this is plain Holm.
    """
    least = [0.0] * len(p_values) if smallest is None else list(smallest)
    adjusted = [1.0] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    able: list[float] = []
    steps = []
    # From the largest p-value down: each is multiplied by the number of tests that are not yet
    # rejected before it and can give a p-value as small.
    for place in reversed(order):
        insort(able, least[place])
        burden = bisect_right(able, p_values[place] * (1 + NOISE))
        steps.append((place, min(1.0, max(burden, 1) * p_values[place])))
    # Adjusted values must not decrease where the raw ones increase.
    highest = 0.0
    for place, step in reversed(steps):
        highest = max(highest, step)
        adjusted[place] = highest
    return adjusted
