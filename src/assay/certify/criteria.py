"""The bars an agent is held to, what it came to at each, and the verdict they add up to."""

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
    """The one-sided bound meets the threshold as well."""

    INCONCLUSIVE = "inconclusive"
    """Too few samples to tell chance from skill."""

    REFUTED = "refuted"
    """The other bound misses the threshold."""


class CriterionStatus(StrEnum):
    """What became of one criterion."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """It could not be measured: neither a pass nor a regression."""


class GradedBy(ReportSection):
    """What gives a criterion its numbers."""

    by: Literal["metric", "check", "judge", "clock"]
    name: str
    """Of the metric, the check, the judge's model or the statistic."""

    sha256: str | None = None
    """Of the metric's code, the check file or the judge's prompt; None where it is not known."""

    files: dict[str, str] = Field(default_factory=dict)
    """The files of the code, by their paths inside the project, with the sha256 of each."""


class ResolvedCriterion(ReportSection):
    """One criterion with every question about it settled."""

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
            raise ValueError("a score has a range, a latency has none")
        return self

    @property
    def worst(self) -> float | None:
        """The score of a sample whose agent failed; None for a latency, which is then infinite."""
        if self.range is None:
            return None
        return self.range[0] if self.direction == "max" else self.range[1]

    def normalize_score(self, score: float) -> float | None:
        """A score as a share of the way from the worst to the best; None for a latency."""
        if self.range is None:
            return None
        low, high = self.range
        share = (score - low) / (high - low)
        return share if self.direction == "max" else 1 - share


class CriterionOutcome(ResolvedCriterion):
    """What one criterion came to over one run."""

    value: FiniteFloat | None
    """The mean over samples, or the statistic of the times. None: unknown, or infinite."""

    lower: FiniteFloat | None = None
    upper: FiniteFloat | None = None
    """The two-sided interval of the mean. Times have none."""

    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    """The one-sided bounds, which decide the evidence. None: too few samples for one."""

    infinite: tuple[Literal["value", "at_least", "at_most"], ...] = ()
    """Which of the times above are +inf, and therefore written as null: calls never came back."""

    samples: int = Field(ge=0)
    """Samples in the value, repeats averaged first, failures of the agent included."""

    unscored: int = Field(ge=0)
    """Samples that could not be measured, and are not in the value."""

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
                raise ValueError("what could not be measured is no evidence")
        elif not (known and self.samples and self.evidence is not None) or self.unscored:
            raise ValueError(f"{self.status} needs a value of all samples, and its evidence")
        return self

    @property
    def blocks(self) -> bool:
        """Whether certification stops here. Unmeasured counts as missed."""
        return self.strict and self.status is not CriterionStatus.PASSED


class LatencyFigures(ReportSection):
    """Milliseconds of the agent's calls alone, by nearest rank: each is a time that occurred."""

    statistic: LatencyStatistic
    """The one that is held against the limit, where there is a limit."""

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
    """Calls that crashed or ran out of time: +inf each."""

    cached: int = Field(default=0, ge=0)
    """Answers that came from a cache: they measure nothing, and are not among the samples."""

    concurrency: int = Field(ge=1)
    """Calls of the agent in flight at once."""

    warmup: int = Field(ge=0)
    """Calls made before, which are in no figure."""


class CertificationVerdict(StrEnum):
    """What a certification comes to."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    """Every strict criterion was met, and some other was not."""

    FAILED = "FAILED"
    ERROR = "ERROR"
    """A strict criterion could not be measured, and none failed."""

    @property
    def exit_status(self) -> int:
        return {"PASSED": 0, "WARNED": 0, "FAILED": 1, "ERROR": 3}[self.value]


def verdict_of(outcomes: Sequence[CriterionOutcome]) -> CertificationVerdict:
    """The verdict that outcomes add up to. Of none it would be vacuous: `ValueError`.

    A strict criterion that failed decides, whatever could not be measured beside it: no second
    try of the rest can change that.
    """
    if not outcomes:
        raise ValueError("a verdict over no criteria would mean nothing")
    blocking = {outcome.status for outcome in outcomes if outcome.blocks}
    if CriterionStatus.FAILED in blocking:
        return CertificationVerdict.FAILED
    if blocking:
        return CertificationVerdict.ERROR
    if any(outcome.status is not CriterionStatus.PASSED for outcome in outcomes):
        return CertificationVerdict.WARNED
    return CertificationVerdict.PASSED
