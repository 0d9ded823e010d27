"""Compare the metrics of two runs: higher or lower, since their good direction is unknown."""

from collections.abc import Mapping
from typing import Literal

from assay.types import NOISE

from .multiplicity import adjust_p_values
from .number_format import WIDTH, clean_text, format_metric, format_plural
from .paired_tests import find_fewest_pairs
from .report_sections import ReportSection, format_interval, format_p_value
from .sample_pairs import PairedScores
from .statistics import Interval

MetricConclusion = Literal["higher", "lower", "no difference shown", "too few to tell"]


class MetricComparison(ReportSection):
    """One metric of run b against run a, over the samples that have it in both."""

    pairs: int
    mean_a: float | None
    mean_b: float | None
    difference: Interval
    p_value: float | None
    adjusted_p: float | None
    """Adjusted by Holm's method over all compared metrics."""

    test: str
    conclusion: MetricConclusion
    """Decided by the adjusted p-value."""


def compare_metrics(
    pairs: Mapping[str, PairedScores], *, confidence: float, seed: int
) -> dict[str, MetricComparison]:
    """Compare each metric, with p-values adjusted for their number."""
    names = sorted(pairs)
    tests = [pairs[name].test(seed) for name in names]
    # The p-value is None only without pairs, which cannot be significant.
    known = [1.0 if test.p_value is None else test.p_value for test in tests]
    adjusted = adjust_p_values(known)
    found = {}
    for name, test, p_value in zip(names, tests, adjusted, strict=True):
        scores = pairs[name]
        difference = scores.interval(confidence, None)
        conclusion: MetricConclusion = "no difference shown"
        if difference.n < find_fewest_pairs(confidence):
            conclusion = "too few to tell"
        elif difference.mean is not None and p_value <= 1 - confidence + NOISE:
            conclusion = "lower" if difference.mean < 0 else "higher"
        found[name] = MetricComparison(
            pairs=len(scores.a),
            mean_a=scores.mean_a,
            mean_b=scores.mean_b,
            difference=difference,
            p_value=test.p_value,
            adjusted_p=p_value,
            test=test.method,
            conclusion=conclusion,
        )
    return found


def format_metric_comparisons(
    metrics: Mapping[str, MetricComparison],
    unpaired: tuple[str, ...],
    left_out: int,
    *,
    width: int = WIDTH,
) -> list[str]:
    """Format a line or two for each metric, and the metrics that were not compared."""
    lines = []
    if metrics:
        lines.append(f"metrics ({len(metrics)}), p adjusted by Holm's method")
    for name, metric in metrics.items():
        words = (
            f"{format_interval(metric.difference, brief=True, signed=True)}, {metric.conclusion} "
            f"(p = {format_p_value(metric.p_value)}, adjusted {format_p_value(metric.adjusted_p)})"
        )
        lines += format_metric(name, words, width=width)
    if unpaired:
        lines.append(clean_text(f"metrics in one run only: {', '.join(unpaired)}", width))
    if left_out:
        words = f"metrics not compared: {format_plural(left_out, 'value')} more than are kept"
        lines.append(clean_text(words, width))
    return lines
