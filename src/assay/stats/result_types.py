"""The narrow results of a run, grouped by sample: the input of all statistics."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from numbers import Real
from operator import attrgetter
from typing import Protocol, TypeVar

from assay.errors import ConfigError

"""Smaller differences are rounding errors of float sums and are ignored."""

# Squares of larger numbers overflow, and one score would make every mean and spread infinite.
_LARGEST_SCORE = 1e150


class ResultLike(Protocol):
    """One result without its bodies, as a store yields them by the million."""

    @property
    def sample_id(self) -> str: ...

    @property
    def repeat(self) -> int: ...

    @property
    def score(self) -> float | None: ...

    @property
    def valid(self) -> bool: ...

    @property
    def boundary(self) -> str | None: ...

    @property
    def metrics(self) -> Mapping[str, float | None]: ...

    @property
    def cost_usd(self) -> float | None: ...

    @property
    def input_tokens(self) -> int | None: ...

    @property
    def output_tokens(self) -> int | None: ...

    @property
    def latency_s(self) -> float | None: ...

    @property
    def cached(self) -> bool: ...


_Result = TypeVar("_Result", bound=ResultLike)


def group_by_sample(results: Iterable[_Result]) -> Iterator[tuple[str, list[_Result]]]:
    """Yield each sample with its repeats, which must be adjacent in `results`.

    Raises `ConfigError` when one repeat occurs twice: it would count double.
    """
    for sample_id, adjacent in groupby(results, key=attrgetter("sample_id")):
        repeats = list(adjacent)
        if len(repeats) > 1:
            counted = Counter(result.repeat for result in repeats)
            twice = [repeat for repeat, count in counted.items() if count > 1]
            if twice:
                raise ConfigError(
                    f"repeat {twice[0]} of sample {sample_id!r} occurs twice",
                    where="results",
                    hint="pass the results of one run, each once",
                )
        yield sample_id, repeats


def read_valid_score(result: ResultLike) -> float | None:
    """Return the score when it is valid, else None. Raises `ConfigError` if it is not finite."""
    if not result.valid or result.score is None:
        return None
    return check_finite(result.score, "the score of sample {!r}", result.sample_id)


def read_valid_scores(results: Sequence[ResultLike]) -> list[float]:
    """Return the valid scores of many results at once. Raises like `read_valid_score`."""
    scores = [result.score for result in results if result.valid and result.score is not None]
    try:
        return check_all_finite(scores, "a score")
    except ConfigError:
        for result in results:
            read_valid_score(result)  # raises with the id of the sample
        raise


def check_finite(value: float, what: str, *names: str) -> float:
    """Return `value` as a float. Raises `ConfigError` for NaN, infinities and huge numbers.

    `names` are formatted into `what` only on failure: this runs for every number of a run.
    """
    if not -_LARGEST_SCORE <= value <= _LARGEST_SCORE:
        raise ConfigError(f"{what.format(*names)} is {value!r}, which is not a number to average")
    return float(value)


def check_all_finite(values: Sequence[float], what: str) -> list[float]:
    """Return many `values` as floats. Raises like `check_finite`."""
    # A NaN makes the sum NaN; infinities and huge numbers are the minimum or the maximum.
    if values and (
        math.isnan(sum(values)) or min(values) < -_LARGEST_SCORE or max(values) > _LARGEST_SCORE
    ):
        for value in values:
            check_finite(value, what)
    return list(map(float, values))


def read_repeats(
    repeats: Iterable[ResultLike],
) -> tuple[list[float], dict[str, list[float]]]:
    """Return the valid scores of a sample's repeats, and the metrics of those by name."""
    scores: list[float] = []
    metrics: dict[str, list[float]] = {}
    for result in repeats:
        score = read_valid_score(result)
        if score is None:
            continue
        scores.append(score)
        for name, value in list_metric_values(result):
            metrics.setdefault(name, []).append(value)
    return scores, metrics


def list_metric_values(result: ResultLike) -> list[tuple[str, float]]:
    """Return the metrics of a result that are numbers. Raises `ConfigError` if one is not finite.

    A metric of another type, which any program may have recorded, counts as not measured.
    """
    metrics: object = result.metrics
    if not isinstance(metrics, Mapping):
        return []
    found = []
    for name, value in metrics.items():
        # Not an integer, which may be too large for a float: that is refused below.
        is_other = not isinstance(value, int) and isinstance(value, Real | Decimal)
        number = float(value) if is_other else value
        if isinstance(number, int | float):
            found.append((name, check_finite(number, "metric {!r}", name)))
    return found


def average(values: Sequence[float]) -> float | None:
    """Return the mean, or None without values."""
    return math.fsum(values) / len(values) if values else None
