"""The result of a scorer: one type for a turn, a trajectory and a training step."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    GetCoreSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from .field_types import NullToEmpty, Text
from .openai_metadata import read_metadata, write_metadata
from .serialization import JsonModel


class Metric(BaseModel):
    """One number of a result. `Metric("correct", 1.0, weight=1.0)` or by keywords.

    `value` is another spelling of `score`.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Text | None = None
    """Taken from the key when the metric sits in a result's `metrics`."""

    score: FiniteFloat | None = Field(default=None, validation_alias=AliasChoices("score", "value"))
    """None only when the metric could not be measured."""

    weight: FiniteFloat | None = None
    """Weight in the score. Negative: a penalty. None beside weighted metrics: tracked only."""

    reason: Text | None = None
    is_score_valid: bool = True

    def __init__(
        self, name: str | None = None, score: float | None = None, /, **fields: Any
    ) -> None:
        if name is not None:
            fields["name"] = name
        if score is not None:
            fields["score"] = score
        super().__init__(**fields)

    # Pydantic calls a custom `__init__` once per loaded object. This one only names the
    # positional arguments, so loading goes around it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # read by pydantic

    @model_validator(mode="after")
    def _unmeasured_is_invalid(self) -> Self:
        if self.score is None and self.is_score_valid:
            if "is_score_valid" in self.model_fields_set:
                raise ValueError("a metric without a score cannot be valid")
            object.__setattr__(self, "is_score_valid", False)
        return self

    @property
    def value(self) -> float | None:
        return self.score


class StepOutput(BaseModel):
    """One exchange with an environment, as its control plane reported it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    step_index: int | str
    base_reward: FiniteFloat | None
    """None when the environment did not report a reward: the total is then unknown."""

    # The default is text, so that False differs from it: a written step always has the field.
    terminated: bool = Field(default="false", validate_default=True)
    """Whether the environment signalled termination at this step."""

    control_plane_info: dict[str, Any] | None = None
    metrics: Annotated[dict[str, Any], NullToEmpty] = Field(default_factory=dict)
    reason: Text | None = None


class _MetricsByName:
    """Reads metrics as a mapping or as a sequence of named ones; holds a mapping."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        mapping = handler(source)
        listed = handler.generate_schema(list[Metric])
        either = core_schema.union_schema(
            [mapping, listed, core_schema.none_schema()], mode="left_to_right"
        )
        return core_schema.with_info_after_validator_function(_name_metrics, either)


def _name_metrics(
    metrics: dict[str, Metric] | list[Metric] | None, info: ValidationInfo
) -> dict[str, Metric]:
    if not isinstance(metrics, dict):
        keyed: dict[str, Metric] = {}
        for metric in metrics or ():
            if metric.name is None:
                raise ValueError("a metric in a sequence needs a name")
            if metric.name in keyed:
                raise ValueError(f"two metrics are named {metric.name!r}")
            keyed[metric.name] = metric
        return keyed
    for key, metric in metrics.items():
        if metric.name != key:
            if metric.name is not None:
                raise ValueError(f"the metric under {key!r} is named {metric.name!r}")
            if info.mode == "json":
                # Just parsed, so no other reference sees the frozen model change.
                metric.__dict__["name"] = key
            else:
                metrics[key] = metric.model_copy(update={"name": key})
    return metrics


class EvaluateResult(JsonModel):
    """The complete result of a scorer.

    Pass a `score`, or `metrics` to compute it from. A result without either is unscored:
    `is_score_valid` is False and `reward` is None.
    """

    model_config = ConfigDict(frozen=True)

    score: FiniteFloat | None = None
    is_score_valid: bool = True
    reason: Text | None = None
    metrics: Annotated[dict[Text, Metric], _MetricsByName] = Field(default_factory=dict)
    step_outputs: tuple[StepOutput, ...] | None = None
    """Every step of the episode, for environments that give rewards."""

    final_control_plane_info: dict[str, Any] | None = None
    trajectory_info: dict[str, Any] | None = None
    """Duration, steps and termination reason of the trajectory that was judged."""

    error: Text | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            score: float | None = None,
            is_score_valid: bool = True,
            reason: str | None = None,
            metrics: Mapping[str, Metric] | Iterable[Metric] = (),
            step_outputs: Iterable[StepOutput] | None = None,
            **fields: Any,
        ) -> None: ...

    @model_validator(mode="after")
    def _settle_score(self) -> Self:
        if self.score is None and self.is_score_valid:
            score, problem = combine_metrics(self.metrics.values())
            if score is not None:
                self.__dict__["score"] = score
            elif "is_score_valid" in self.model_fields_set:
                raise ValueError(f"a result without a score cannot be valid: {problem}")
            else:
                self.__dict__["is_score_valid"] = False
                if self.reason is None and self.metrics:
                    self.__dict__["reason"] = problem
        return self

    @property
    def reward(self) -> float | None:
        """The score when it is valid, else None; never 0.0 for an unscored sample."""
        return self.score if self.is_score_valid else None

    def to_openai_metadata(self, lossless: bool = False) -> dict[str, str]:
        """Return the result as metadata of an OpenAI message, shortened unless `lossless`.

        Dropped parts are listed in the info. `lossless` raises `WireError` when 16 pairs
        cannot represent the result exactly.
        """
        return write_metadata(self, lossless=lossless)

    @classmethod
    def from_openai_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Read the output of `to_openai_metadata`. Unreadable parts make the result invalid."""
        return read_metadata(cls, metadata)


def explain_result(result: EvaluateResult) -> str:
    """Return the reason of a score, or the error of a result without one; "" if there is none."""
    # The reason of an invalid result may only list its parts: the error is why they are invalid.
    texts = (result.reason, result.error)
    first, second = texts if result.is_score_valid else reversed(texts)
    return first or second or ""


def combine_metrics(metrics: Iterable[Metric]) -> tuple[float | None, str]:
    """Return the combined score, or None and the reason why there is none.

    Positive weights: the weighted mean. Negative weights: penalties, added after it. No weights
    at all: the plain mean. Without a weight beside weighted ones: tracked only.
    """
    metrics = tuple(metrics)
    if any(metric.weight is not None for metric in metrics):
        counting = tuple(metric for metric in metrics if metric.weight)
    else:
        counting = metrics
    if not counting:
        return None, "no metric counts towards the score"
    terms: list[tuple[float, float]] = []
    for metric in counting:
        if metric.score is None or not metric.is_score_valid:
            # Leaving it out would change the weights of the others: the result is unscored.
            return None, f"metric {metric.name!r} is not valid"
        terms.append((1.0 if metric.weight is None else metric.weight, metric.score))
    gain = sum(weight for weight, _ in terms if weight > 0)
    base = sum(weight * value for weight, value in terms if weight > 0) / gain if gain else 0.0
    score = base + sum(weight * value for weight, value in terms if weight < 0)
    # Finite numbers may add up to an infinite one, or to none at all.
    return (score, "") if isfinite(score) else (None, "the metrics add up to no finite number")


MetricResult = Metric
"""The name of `Metric` in eval-protocol."""


Score = EvaluateResult
"""The name of `EvaluateResult` in rollouts."""
