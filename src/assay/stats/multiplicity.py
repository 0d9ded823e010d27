"""Several tests at once: p-values that may be read together."""

from bisect import bisect_right, insort
from collections.abc import Sequence

from .result_types import NOISE


def adjust_p_values(
    p_values: Sequence[float], *, smallest: Sequence[float] | None = None
) -> list[float]:
    """Holm's adjusted p-values.

    Whatever the tests have to do with each other: the chance that an adjusted p-value of any
    unchanged one is at most 0.05 is at most 0.05.

    `smallest` are the p-values that each test could have given at all. As Tarone proposed, a
    p-value is multiplied only by the number of tests that could have given one as small: tests
    in which too few samples changed to show anything are no burden on the others. Without them
    this is plain Holm.
    """
    least = [0.0] * len(p_values) if smallest is None else list(smallest)
    adjusted = [1.0] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    able: list[float] = []
    steps = []
    # From the largest p-value on: each is shared with those above it, which are not yet settled.
    for place in reversed(order):
        insort(able, least[place])
        burden = bisect_right(able, p_values[place] * (1 + NOISE))
        steps.append((place, min(1.0, max(burden, 1) * p_values[place])))
    highest = 0.0
    for place, step in reversed(steps):
        highest = max(highest, step)
        adjusted[place] = highest
    return adjusted
