"""Runs in a store, made in one line: what commands read."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.runner import EvalConfig, EvalReport, Stop, evaluate
from assay.types import EvaluateResult, Sample
from make import asked, said, sample


def conversation(name: str, answer: str = "yes", **fields: Any) -> Sample:
    return sample(asked(f"{name}?"), said(answer), id=name, **fields)


def judged_by_metadata(given: Sample) -> EvaluateResult:
    """A scorer that says what the sample's metadata says, and breaks where it says so."""
    wanted = given.metadata.get("score")
    if wanted == "broken":
        raise RuntimeError("the scorer broke \x1b[2J")
    return EvaluateResult(score=wanted, reason=given.metadata.get("reason"))


def samples(**scores: float | str | None) -> list[Sample]:
    """One sample for each name, with the score it is to get; "broken" fails, None is not judged."""
    return [
        conversation(name, metadata={"score": score, "reason": f"because of {name}"})
        for name, score in scores.items()
    ]


def evaluated(
    store: Path,
    *given: Sample,
    name: str = "eval",
    repeats: int = 1,
    score_fn: Callable[[Sample], Any] = judged_by_metadata,
    stop: Stop | None = None,
    bounds: tuple[float, float] | None = None,
) -> EvalReport:
    """Score samples as they are into a new run of `store`."""
    config = EvalConfig(score_fn=score_fn, name=name, repeats=repeats, concurrency=1, bounds=bounds)
    return asyncio.run(evaluate(list(given), config, store=store, stop=stop))


def record(store: Path, *given: Sample, **options: Any) -> str:
    """The id of the run that `evaluated` makes."""
    return evaluated(store, *given, **options).run_id


def stopped() -> Stop:
    """A run that is given this is interrupted before its first sample."""
    stop = Stop(grace_s=0)
    stop.request()
    return stop
