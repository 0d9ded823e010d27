"""An agent's certification criteria: metrics, golden dataset and thresholds."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, FiniteFloat, Strict, StrictBool, model_validator

from .frozen_models import FrozenModel

Statistic = Literal["p50", "p90", "p95", "p99", "max", "mean"]
"""Which statistic of all measured times is compared with the limit."""


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty; omit the field instead")
    return text


def _check_printable_name(text: str) -> str:
    if _check_not_blank(text) != text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} contains surrounding spaces or control characters")
    return text


NonBlankText = Annotated[str, AfterValidator(_check_not_blank)]
"""Text that is not blank."""

Name = Annotated[str, Field(max_length=200), AfterValidator(_check_printable_name)]
"""A name, an id or an address: one printable line."""

StrictFiniteFloat = Annotated[FiniteFloat, Strict()]
"""A finite number that was written as one: neither text nor a bool."""

StrictPositiveInt = Annotated[int, Strict(), Field(gt=0)]


class SuccessCriterion(FrozenModel):
    """One criterion of the agent's manifest: a metric and its threshold."""

    name: Name
    """Also the name of the metric, unless `metric` is set."""

    description: NonBlankText
    threshold: StrictFiniteFloat
    strict: StrictBool = True
    """A missed strict criterion blocks certification; any other only warns."""

    direction: Literal["max", "min"] | None = None
    """Whether high (`max`) or low (`min`) values are good; None leaves it to the metric."""

    metric: Name | None = None
    """A registered metric, or `module:function`."""

    range: tuple[StrictFiniteFloat, StrictFiniteFloat] | None = None
    """Lowest and highest value that the metric can have."""

    @model_validator(mode="after")
    def _range_has_width(self) -> Self:
        if self.range is not None and self.range[0] >= self.range[1]:
            low, high = self.range
            raise ValueError(f"the range [{low:g}, {high:g}] is not ascending")
        return self


class EvaluationProfile(FrozenModel):
    """How an agent is certified: its golden dataset, its judge, its limits and its rubric."""

    expected_latency_ms: StrictPositiveInt | None = None
    """The maximum response time, compared with `latency_statistic`."""

    golden_dataset_uri: Annotated[Name, Field(max_length=2000)] | None = None
    """A path inside the manifest's folder, or an address: see `fetch_golden`."""

    evaluator_model: Name | None = None
    """The model that judges the criteria which no metric measures."""

    grading_rubric: tuple[SuccessCriterion, ...] = ()
    golden_dataset_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Pins the dataset: other content at the same address is refused."""

    latency_statistic: Statistic = "p95"
    gate: Literal["point", "proven"] = "point"
    """Whether the measured value decides, or its bound at `confidence`."""

    confidence: Annotated[StrictFiniteFloat, Field(ge=0.5, lt=1)] = 0.95
    repeats: StrictPositiveInt = 1
    """How many times each sample is run."""
