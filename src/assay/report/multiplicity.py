"""Several tests at once: p-values that may be read together."""

from collections.abc import Sequence


def adjust_p_values(
    p_values: Sequence[float], *, smallest: Sequence[float] | None = None, alpha: float = 0.05
) -> list[float]:
    """Holm's adjusted p-values: those at most `alpha` hold together with that chance of error.

    `smallest` are the p-values that each test could have given at all. A test that could not
    have shown anything is no burden on the others, as Tarone proposed: a handful of tests with
    few changed samples does not hide a regression of another. Without them this is plain Holm.
    """
    least = [0.0] * len(p_values) if smallest is None else list(smallest)
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for done, place in enumerate(order):
        burden = _burden([least[other] for other in order[done:]], alpha)
        highest = max(highest, min(1.0, burden * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _burden(least: list[float], alpha: float) -> int:
    """By how many tests the error has to be shared: only by those that can show anything."""
    sorted_least = sorted(least)
    able = len(sorted_least)
    for shared in range(1, len(sorted_least) + 1):
        while able and sorted_least[able - 1] * shared > alpha:
            able -= 1
        if able <= shared:
            return shared
    return max(len(sorted_least), 1)
