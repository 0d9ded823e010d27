"""Pass or fail a run by a threshold, a baseline, and the share of judged samples."""

from dataclasses import dataclass
from enum import StrEnum

from assay.errors import ConfigError
from assay.types import NOISE, reaches_threshold

from .comparison import Comparison, Conclusion
from .number_format import WIDTH, format_labelled, format_number, format_percent, format_plural
from .report_sections import ReportSection
from .result_types import check_finite
from .statistics import samples_to_prove
from .summary import RunSummary

_JUDGED_CHECK = "judged"


class Outcome(StrEnum):
    """The outcome of a gate or of one of its checks."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_TELL = "could not tell"


@dataclass(frozen=True, slots=True, init=False)
class GateRule:
    """The criteria of a gate. Raises `ConfigError` for values that no run can meet or miss."""

    threshold: float | None = None
    """The lowest mean score that passes. `minimum` is another name of it."""

    proven: bool = False
    """Require that the one-sided lower bound reaches the threshold, not only the mean."""

    tolerance: float | None = None
    """How much worse than the baseline's the mean may be. None: not by a significant difference."""

    max_not_judged: float = 0.05
    """The largest share of unscored results, and of baseline samples without a pair."""

    def __init__(
        self,
        threshold: float | None = None,
        proven: bool = False,
        tolerance: float | None = None,
        max_not_judged: float = 0.05,
        *,
        minimum: float | None = None,
    ) -> None:
        if threshold is None:
            threshold = minimum
        elif minimum is not None and minimum != threshold:
            raise ConfigError(
                f"threshold is {threshold!r}, but minimum, another name of it, is {minimum!r}",
                where="gate",
                hint="pass `threshold` only",
            )
        if threshold is not None:
            check_finite(threshold, "threshold")
        elif proven:
            raise ConfigError("`proven` needs a threshold", where="gate")
        if tolerance is not None and check_finite(tolerance, "tolerance") < 0:
            raise ConfigError(f"tolerance is {tolerance!r}, not 0 or more", where="gate")
        if not 0 <= max_not_judged <= 1:
            raise ConfigError(
                f"max_not_judged is {max_not_judged!r}, not a share within 0..1", where="gate"
            )
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "proven", proven)
        object.__setattr__(self, "tolerance", tolerance)
        object.__setattr__(self, "max_not_judged", max_not_judged)

    @property
    def minimum(self) -> float | None:
        """Another name of `threshold`."""
        return self.threshold


class Check(ReportSection):
    """One condition of a gate and its outcome."""

    name: str
    outcome: Outcome
    text: str


class Unscored(ReportSection):
    """Results without a valid score: how many, and how many the rule allows."""

    count: int
    results: int
    share: float | None
    """None without results."""

    allowed: float
    """The largest share with which a gate can pass."""

    def __str__(self) -> str:
        share = "" if self.share is None else f" ({100 * self.share:.1f} %)"
        results = format_plural(self.results, "result")
        return f"{self.count} of {results}{share}, at most {format_percent(self.allowed)} allowed"


class Verdict(ReportSection):
    """The decision of a gate, with all of its checks."""

    outcome: Outcome
    checks: tuple[Check, ...]
    unscored: Unscored | None = None
    """The results that the numbers exclude."""

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def exit_status(self) -> int:
        return {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.COULD_NOT_TELL: 3}[self.outcome]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, *, width: int = WIDTH) -> list[str]:
        """Format the verdict as lines of at most `width` columns."""
        lines = format_labelled("gate", str(self.outcome), width=width)
        has_unscored = self.unscored is not None and self.unscored.count > 0
        if has_unscored:
            lines += format_labelled("unscored", str(self.unscored), width=width)
        for check in self.checks:
            # The line above already contains the numbers of a passed check on judged results.
            passed = check.outcome is Outcome.PASSED
            if not (has_unscored and check.name == _JUDGED_CHECK and passed):
                lines += format_labelled(check.name, f"{check.outcome}: {check.text}", width=width)
        return lines


def judge_gate(
    summary: RunSummary, rule: GateRule, *, comparison: Comparison | None = None
) -> Verdict:
    """Check a run against a rule, and against a baseline if a comparison is given.

    With too few judged samples the gate is inconclusive, regardless of the other checks. Else one
    failed check fails the gate. `comparison` has the baseline first and this run second.
    """
    if comparison is None and rule.threshold is None:
        raise ConfigError(
            "the gate has no criterion", where="gate", hint="give a threshold or a baseline"
        )
    if rule.threshold is not None and summary.direction == "min":
        raise ConfigError(
            "a threshold does not apply: low scores are good in this run",
            where="gate",
            hint="compare it with a baseline, or score it by a metric whose high values are good",
        )
    if comparison is None and rule.tolerance is not None:
        raise ConfigError("a tolerance needs a baseline", where="gate")
    # Catches most swapped runs: the gate would take every regression for an improvement.
    if comparison is not None and comparison.samples_b != summary.samples:
        raise ConfigError(
            f"the comparison's second run has {format_plural(comparison.samples_b, 'sample')}, "
            f"but this run has {summary.samples}",
            where="gate",
            hint="pass the baseline as the first run and this run as the second",
        )
    evidence = [_check_judged_share(summary, rule)]
    others = []
    if rule.threshold is not None:
        others.append(_check_mean(summary, rule.threshold, proven=rule.proven))
    if comparison is not None:
        evidence.append(_check_paired_share(comparison, rule))
        others.append(_check_against_baseline(comparison, rule))
    outcomes = {check.outcome for check in others}
    # Evidence first: a mean over the few samples that were judged must not pass or fail a run.
    if any(check.outcome is not Outcome.PASSED for check in evidence):
        outcomes = {Outcome.COULD_NOT_TELL}
    ranked = (Outcome.FAILED, Outcome.COULD_NOT_TELL, Outcome.PASSED)
    return Verdict(
        outcome=next(outcome for outcome in ranked if outcome in outcomes),
        checks=(*evidence, *others),
        unscored=Unscored(
            count=summary.not_judged_results,
            results=summary.results,
            share=summary.not_judged_share,
            allowed=rule.max_not_judged,
        ),
    )


def _check_judged_share(summary: RunSummary, rule: GateRule) -> Check:
    share = summary.not_judged_share
    if share is None or not summary.judged_samples:
        text = f"none of {format_plural(summary.samples, 'sample')} was judged"
        return Check(name=_JUDGED_CHECK, outcome=Outcome.COULD_NOT_TELL, text=text)
    text = f"{summary.not_judged_results} of {format_plural(summary.results, 'result')} not judged"
    return _check_share(_JUDGED_CHECK, text, share, rule.max_not_judged)


def _check_paired_share(comparison: Comparison, rule: GateRule) -> Check:
    if not comparison.pairs:
        return Check(
            name="paired", outcome=Outcome.COULD_NOT_TELL, text="no sample is judged in both runs"
        )
    # Of the baseline's samples: a run that drops its hardest ones must not pass for it.
    total = comparison.baseline_judged
    unpaired = total - comparison.pairs
    text = f"{unpaired} of {format_plural(total, 'baseline sample')} without a judged pair"
    return _check_share("paired", text, unpaired / total, rule.max_not_judged)


def _check_share(name: str, text: str, share: float, most: float) -> Check:
    within = share <= most + NOISE
    outcome = Outcome.PASSED if within else Outcome.COULD_NOT_TELL
    return Check(name=name, outcome=outcome, text=f"{text}; at most {format_percent(most)} allowed")


def _check_mean(summary: RunSummary, threshold: float, *, proven: bool) -> Check:
    interval = summary.score.interval
    value = interval.at_least if proven else interval.mean
    if value is None:
        text = (
            f"the mean has no lower bound: {interval.reason}" if proven else "the run has no mean"
        )
        return Check(name="threshold", outcome=Outcome.COULD_NOT_TELL, text=text)
    reached = reaches_threshold(value, threshold)
    words = "reaches" if reached else "is below"
    shown, required = format_number(value, beside=threshold), format_number(threshold, beside=value)
    text = f"mean {shown} {words} {required}"
    if proven:
        confidence = format_percent(interval.confidence)
        text = (
            f"the mean is at least {shown} with {confidence} confidence, which {words} {required}"
        )
    if proven and not reached and interval.method == "beta":
        # A reader should learn that the run is too small, not search for samples to improve.
        low, high = summary.bounds or (0.0, 1.0)
        needed = samples_to_prove((threshold - low) / (high - low), confidence=interval.confidence)
        if needed is None:
            text += "; no number of samples can prove it"
        elif needed > interval.n:
            text += f"; {interval.n} perfect samples could not prove it, {needed} could"
    return Check(name="threshold", outcome=Outcome.PASSED if reached else Outcome.FAILED, text=text)


def _check_against_baseline(comparison: Comparison, rule: GateRule) -> Check:
    mean = comparison.difference.mean
    if mean is None:
        return Check(
            name="baseline", outcome=Outcome.COULD_NOT_TELL, text="no sample is judged in both runs"
        )
    change = f"changed by {format_number(mean, signed=True)}"
    if rule.tolerance is not None:
        failed = comparison.is_worse(mean) and abs(mean) > rule.tolerance + NOISE
        words = "more than" if failed else "within"
        text = (
            f"{change}, {words} the tolerance of {format_number(rule.tolerance, beside=abs(mean))}"
        )
        return Check(
            name="baseline", outcome=Outcome.FAILED if failed else Outcome.PASSED, text=text
        )
    conclusion = comparison.conclusion
    text = f"{change}, {conclusion} (p = {format_number(comparison.p_value, beside=0.0)})"
    if conclusion is Conclusion.NO_DIFFERENCE_SHOWN and comparison.detectable is not None:
        text += f"; below {format_number(comparison.detectable)} a difference may go unseen"
    if comparison.repeats_words:
        text += f"; repeats differ: {comparison.repeats_words}"
    outcome = {
        Conclusion.WORSE: Outcome.FAILED,
        Conclusion.TOO_FEW: Outcome.COULD_NOT_TELL,
    }.get(conclusion, Outcome.PASSED)
    return Check(name="baseline", outcome=outcome, text=text)
