"""The recorded scale of a run's scores: their bounds, and whether high or low ones are good."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError, ScorerFault

from .bounds import Direction
from .number_format import format_number
from .result_types import ResultLike, check_finite
from .statistics import Bounds, is_within
from .summary import RunSummary, summarise

if TYPE_CHECKING:
    from assay.types import EvaluateResult

_DEFAULT_BOUNDS = (0.0, 1.0)


def read_recorded_bounds(config: Mapping[str, Any]) -> Bounds | None:
    """Return the lowest and highest possible score of a run's configuration, or None.

    Also None if the configuration, which any program may have recorded, has no two numbers there.
    """
    bounds = config.get("bounds")
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        return None
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in bounds):
        return None
    try:
        low, high = (check_finite(end, "a bound") for end in bounds)
    except ConfigError:
        return None
    return (low, high) if low < high else None


def read_recorded_direction(config: Mapping[str, Any]) -> Direction:
    """Return whether high or low scores are good in a run with this configuration."""
    return "min" if config.get("direction") == "min" else "max"


def find_shared_direction(a: Mapping[str, Any], b: Mapping[str, Any]) -> Direction:
    """Return the direction of two runs, by their configurations.

    Raises `ConfigError` when they differ: neither run is then better or worse.
    """
    first, second = read_recorded_direction(a), read_recorded_direction(b)
    if first != second:
        low = "first" if first == "min" else "second"
        raise ConfigError(
            f"low scores are good in the {low} run, but high scores in the other",
            where="direction",
            hint="score one of them again with the scorer of the other: `assay score RUN`",
        )
    return first


def find_shared_bounds(a: Mapping[str, Any], b: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds of two runs, by their configurations.

    Raises `ConfigError` when they differ: means on two scales cannot be compared.
    """
    first, second = read_recorded_bounds(a), read_recorded_bounds(b)
    if (first or _DEFAULT_BOUNDS) != (second or _DEFAULT_BOUNDS):
        raise ConfigError(
            "the runs are scored on different scales: "
            f"{_describe_bounds(first)} and {_describe_bounds(second)}",
            where="bounds",
            hint="repeat the older run with the `bounds` of the other",
        )
    # One of them may be None, which is the default 0..1.
    return first or second


def summarise_recorded(results: Iterable[ResultLike], config: Mapping[str, Any]) -> RunSummary:
    """Summarise a run on its own scale: a repeat passes with the best score."""
    bounds, direction = read_recorded_bounds(config), read_recorded_direction(config)
    low, high = bounds or _DEFAULT_BOUNDS
    success = high if direction == "max" else low
    return summarise(results, bounds=bounds, success=success, direction=direction)


def refuse_out_of_bounds(result: "EvaluateResult", bounds: Bounds | None) -> None:
    """Raise `ScorerFault` for a score outside the bounds, on which every interval relies."""
    score = result.score
    if bounds is None or score is None or not result.is_score_valid:
        return
    if not is_within(score, score, bounds):
        low, high = bounds
        raise ScorerFault(
            f"the score {score!r} is outside the bounds {low!r} to {high!r}",
            hint="set `bounds` to the lowest and highest score possible",
        )


def _describe_bounds(bounds: Bounds | None) -> str:
    if bounds is None:
        return "0 to 1 (no `bounds` were given)"
    return f"{format_number(bounds[0])} to {format_number(bounds[1])}"
