"""Several scorers as one: each is a metric of the result."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Literal

from assay.errors import ConfigError
from assay.types import EvaluateResult, Metric, Sample

from .caller import ScoreCaller, ScoreFunction
from .metrics import NamedScorer, RegisteredMetric, require_metric

WeightedScorer = tuple[NamedScorer, float]

# Names of the functions that factories of scorers return.
_FACTORY_NAMES = frozenset({"<lambda>", "score", "scorer", "wrapper"})


class CombinedScorer:
    """Calls each scorer and combines their metrics: a weighted or a plain mean.

    A metric is named after its scorer. Metrics that a scorer returns itself are added as
    `scorer.metric`, and do not count towards the score.
    """

    def __init__(self, scorers: Sequence[NamedScorer | WeightedScorer]) -> None:
        if not scorers:
            raise ConfigError("the list of scorers is empty", where="score_fn")
        self._scorers: dict[str, tuple[ScoreFunction, float | None]] = {}
        low_is_good: list[bool] = []
        for each in scorers:
            given, weight = each if isinstance(each, tuple) else (each, None)
            if weight is not None and not _is_weight(weight):
                raise ConfigError(
                    f"the weight of {_describe_scorer(given)} is {weight!r}, not a finite number",
                    where="score_fn",
                    hint="list scorers, or pairs of a scorer and its weight",
                )
            if isinstance(given, str):
                given = require_metric(given, where="score_fn")
            if isinstance(given, RegisteredMetric):
                scorer, base = given.scorer, given.name
                # As a penalty, a metric lowers the score as it grows.
                low_is_good.append(given.direction == "min" and not (weight or 0) < 0)
            else:
                scorer, base = given, name_scorer(given)
                low_is_good.append(False)
            if not callable(scorer):
                raise ConfigError(
                    f"{scorer!r} in the list of scorers is not callable",
                    where="score_fn",
                    hint="list scorers, or pairs of a scorer and its weight",
                )
            name, number = base, 1
            while name in self._scorers:
                number += 1
                name = f"{base}_{number}"
            self._scorers[name] = scorer, weight
        weights = [weight for _, weight in self._scorers.values() if weight is not None]
        if weights and not any(weights):
            raise ConfigError(
                "all weights in the list of scorers are 0, so nothing counts towards the score",
                where="score_fn",
                hint="give one of the scorers a positive weight",
            )
        if any(low_is_good) and not all(low_is_good):
            name = list(self._scorers)[low_is_good.index(True)]
            raise ConfigError(
                f"low values of {name!r} are good, but high values of the other scorers",
                where="score_fn",
                hint="give it a negative weight, as a penalty, or score by it alone",
            )
        self.direction: Literal["max", "min"] = "min" if all(low_is_good) else "max"
        """Whether high or low scores are good."""

        self._callers: dict[str, ScoreCaller] = {}

    async def __call__(self, sample: Sample) -> EvaluateResult:
        if not self._callers:
            self._callers = {name: ScoreCaller(fn) for name, (fn, _) in self._scorers.items()}
        results = await asyncio.gather(
            *(call(_copy_conversation(sample)) for call in self._callers.values())
        )
        weights = [weight for _, weight in self._scorers.values()]
        # With weights of its own on some metric, the others would only be tracked.
        plain = 1.0 if all(weight is None for weight in weights) else None
        metrics: list[Metric] = []
        reasons: list[str] = []
        for name, weight, result in zip(self._scorers, weights, results, strict=True):
            reason = result.reason or result.error
            own = plain if weight is None else weight
            metrics.append(Metric(name, result.reward, weight=own, reason=reason))
            metrics += [
                metric.model_copy(update={"name": f"{name}.{key}", "weight": None})
                for key, metric in result.metrics.items()
            ]
            if reason:
                reasons.append(f"{name}: {reason}")
        return EvaluateResult(metrics=metrics, reason="; ".join(reasons) or None)

    def close(self) -> None:
        """End the threads of slow scorers."""
        for caller in self._callers.values():
            caller.close()
        self._callers = {}


def _describe_scorer(given: NamedScorer) -> str:
    return repr(given.name if isinstance(given, RegisteredMetric) else given)


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _copy_conversation(sample: Sample) -> Sample:
    """Copy a sample with its list of messages: scorers that run at once must not share it."""
    trajectory = sample.trajectory
    if trajectory is not None:
        trajectory = trajectory.model_copy(update={"messages": trajectory.messages.copy()})
    return sample.model_copy(update={"trajectory": trajectory})


def name_scorer(scorer: object) -> str:
    """Return the name of a scorer as a metric."""
    named = scorer.func if isinstance(scorer, functools.partial) else scorer
    name = getattr(named, "__name__", None) or type(named).__name__
    outer, inner, _ = getattr(named, "__qualname__", "").partition(".<locals>")
    # `exact_answer.<locals>.score` says more by the name of its factory.
    return outer.rpartition(".")[2] if inner and name in _FACTORY_NAMES else name
