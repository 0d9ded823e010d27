"""What every number is made of: the narrow results of a run, the repeats of one sample together."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from assay.errors import ConfigError

NOISE = 1e-9
"""Differences below this come from adding floats in another order. They decide nothing."""


_LARGEST = 1e150


class ResultLike(Protocol):
    """One result without its bodies: what a store hands out by the million."""

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


def by_sample(results: Iterable[_Result]) -> Iterator[tuple[str, list[_Result]]]:
    """Each sample with its repeats, which must come one after another.

    Raises `ConfigError` when one repeat comes twice: it would count double.
    """
    for sample_id, group in groupby(results, key=lambda result: result.sample_id):
        repeats = list(group)
        seen: set[int] = set()
        for result in repeats:
            if result.repeat in seen:
                raise ConfigError(
                    f"repeat {result.repeat} of sample {sample_id!r} comes twice",
                    where="results",
                    hint="give the results of one run, each once",
                )
            seen.add(result.repeat)
        yield sample_id, repeats


def judged_score(result: ResultLike) -> float | None:
    """The score when it is valid, else None. Raises `ConfigError` when it is not finite."""
    if not result.valid or result.score is None:
        return None
    return finite(result.score, "the score of sample {!r}", result.sample_id)


def finite(value: float, what: str, *names: str) -> float:
    """`value` as a float. Raises `ConfigError` for NaN, infinities and what would become one.

    `names` are put into `what` only then: this runs for every number of a run.
    """
    # Squares of larger numbers overflow, and one score would make every number unknown.
    if not -_LARGEST <= value <= _LARGEST:
        raise ConfigError(f"{what.format(*names)} is {value!r}, which is not a number to average")
    return float(value)


@dataclass(frozen=True, slots=True)
class SampleMean:
    """One sample, its repeats averaged."""

    sample_id: str
    mean: float | None
    """Over the judged repeats; None when there is none."""

    judged: int
    results: int


def per_sample_means(results: Iterable[ResultLike]) -> Iterator[SampleMean]:
    """Average the repeats of each sample: samples are the unit of all statistics."""
    for sample_id, repeats in by_sample(results):
        scores = [score for result in repeats if (score := judged_score(result)) is not None]
        yield SampleMean(sample_id, average(scores), len(scores), len(repeats))


def average(values: list[float]) -> float | None:
    """The mean, or None of nothing."""
    return math.fsum(values) / len(values) if values else None
