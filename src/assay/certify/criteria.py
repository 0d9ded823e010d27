"""Criteria of a certification, their outcomes, and the verdict."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from assay.stats import Direction, ReportSection

LatencyStatistic = Literal["p50", "p90", "p95", "p99", "max", "mean"]
Gate = Literal["point", "proven"]


class EvidenceLevel(StrEnum):
    """How much the samples prove about a criterion, at its confidence."""

    PROVEN = "proven"
    """The one-sided bound meets the threshold, too."""

    INCONCLUSIVE = "inconclusive"
    """Too few samples to exclude chance."""

    REFUTED = "refuted"
    """The other bound misses the threshold."""


class CriterionStatus(StrEnum):
    """The status of one criterion."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """Not measurable: neither a pass nor a failure."""


class GradedBy(ReportSection):
    """How a criterion is measured."""

    by: Literal["metric", "check", "judge", "clock"]
    name: str
    """Name of the metric, the check, the judge's model or the statistic."""

    sha256: str | None = None
    """Digest of the metric's code, the check file or the judge's prompt; None if unknown."""

    files: dict[str, str] = Field(default_factory=dict)
    """The files of the code: path inside the project, and sha256."""


class ResolvedCriterion(ReportSection):
    """One criterion with all defaults resolved."""

    name: str = Field(min_length=1)
    description: str
    kind: Literal["score", "latency"]
    graded_by: GradedBy
    direction: Direction
    threshold: FiniteFloat
    """Milliseconds for a latency."""

    strict: bool
    range: tuple[FiniteFloat, FiniteFloat] | None
    """Lowest and highest value of a score; None for a latency."""

    gate: Gate
    confidence: float = Field(gt=0.5, lt=1)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if (self.range is None) != (self.kind == "latency"):
            raise ValueError("a score needs a `range`, and a latency must not have one")
        return self

    @property
    def worst(self) -> float | None:
        """The score of a failed call; None for a latency, which is then infinite."""
        if self.range is None:
            return None
        return self.range[0] if self.direction == "max" else self.range[1]

    def normalize_score(self, score: float) -> float | None:
        """Scale a score from 0, the worst, to 1, the best; None for a latency."""
        if self.range is None:
            return None
        low, high = self.range
        share = (score - low) / (high - low)
        return share if self.direction == "max" else 1 - share


class CriterionOutcome(ResolvedCriterion):
    """The outcome of one criterion over one run."""

    value: FiniteFloat | None
    """The mean over samples, or the statistic of the times. None: unknown, or infinite."""

    lower: FiniteFloat | None = None
    upper: FiniteFloat | None = None
    """The two-sided interval of the mean. Times have none."""

    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    """The one-sided bounds, which decide the evidence. None: too few samples for one."""

    infinite: tuple[Literal["value", "at_least", "at_most"], ...] = ()
    """Which of the times above are +inf because calls failed. JSON has no infinity: null."""

    samples: int = Field(ge=0)
    """Samples in the value, repeats averaged first, failures of the agent included."""

    unscored: int = Field(ge=0)
    """Samples that could not be measured, which the value omits."""

    agent_errors: int = Field(ge=0)
    """Calls of the agent that failed: the worst score each, or a time without end."""

    evidence: EvidenceLevel | None
    """None when the criterion could not be measured."""

    status: CriterionStatus
    reason: str

    @model_validator(mode="after")
    def _check_status(self) -> Self:
        known = self.value is not None or "value" in self.infinite
        if self.status is CriterionStatus.ERROR:
            if self.evidence is not None:
                raise ValueError("a criterion with status error must not have evidence")
        elif not (known and self.samples and self.evidence is not None) or self.unscored:
            raise ValueError(f"status {self.status} needs a value over all samples, and evidence")
        return self

    @property
    def blocks(self) -> bool:
        """Whether this outcome blocks certification. Unmeasured counts as missed."""
        return self.strict and self.status is not CriterionStatus.PASSED


class LatencyFigures(ReportSection):
    """Milliseconds of the agent's calls alone, by nearest rank: each is a time that occurred."""

    statistic: LatencyStatistic
    """The statistic that the limit applies to, if there is one."""

    p50: FiniteFloat | None
    p90: FiniteFloat | None
    p95: FiniteFloat | None
    p99: FiniteFloat | None
    max: FiniteFloat | None
    mean: FiniteFloat | None
    infinite: tuple[LatencyStatistic, ...] = ()
    """Which of them are +inf, and therefore written as null."""

    samples: int = Field(ge=0)
    """Calls that were measured, failed ones included."""

    failed: int = Field(ge=0)
    """Calls that crashed or timed out: +inf each."""

    cached: int = Field(default=0, ge=0)
    """Cached answers, which have no time and are not among the samples."""

    concurrency: int = Field(ge=1)
    """Calls of the agent in flight at once."""

    warmup: int = Field(ge=0)
    """Calls before the measurement, which no figure includes."""


class CertificationVerdict(StrEnum):
    """The verdict of a certification."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    """Every strict criterion was met, and another one was not."""

    FAILED = "FAILED"
    ERROR = "ERROR"
    """A strict criterion could not be measured, and none failed."""

    @property
    def exit_status(self) -> int:
        return {"PASSED": 0, "WARNED": 0, "FAILED": 1, "ERROR": 3}[self.value]


def verdict_of(outcomes: Sequence[CriterionOutcome]) -> CertificationVerdict:
    """Derive the verdict from the outcomes. Raises `ValueError` without any."""
    if not outcomes:
        raise ValueError("a verdict needs at least one outcome")
    blocking = {outcome.status for outcome in outcomes if outcome.blocks}
    # FAILED before ERROR: measuring the rest again could not change a failed strict criterion.
    if CriterionStatus.FAILED in blocking:
        return CertificationVerdict.FAILED
    if blocking:
        return CertificationVerdict.ERROR
    if any(outcome.status is not CriterionStatus.PASSED for outcome in outcomes):
        return CertificationVerdict.WARNED
    return CertificationVerdict.PASSED
