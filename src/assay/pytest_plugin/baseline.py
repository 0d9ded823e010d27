"""This session against an earlier summary, test by test, paired by sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.models import Sample
from assay.report import Comparison, Conclusion, compare
from assay.report.results import NOISE
from assay.report.wording import number, plural

from .summary import read_rows, read_summary


@dataclass(frozen=True)
class TestComparison:
    """One test beside its baseline."""

    __test__ = False

    test: str
    comparison: Comparison | None
    """None when the test is in one of the summaries only."""

    regressed: bool
    text: str


@dataclass(frozen=True)
class Row:
    """A recorded sample as statistics see it."""

    sample_id: str
    repeat: int
    score: float | None
    valid: bool
    boundary: str | None = None
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_s: float | None = None
    cached: bool = False

    @property
    def metrics(self) -> Mapping[str, float | None]:
        return {}


def compare_summaries(
    baseline: Path, current: Path, *, tolerance: float | None
) -> list[TestComparison]:
    """Hold each test of `current` to the same test of `baseline`."""
    before = {test["test"] for test in read_summary(baseline)["tests"]}
    now = {test["test"] for test in read_summary(current)["tests"]}
    old, new = _by_test(baseline), _by_test(current)
    results = [
        compare_test(test, old.get(test, []), new.get(test, []), tolerance=tolerance)
        for test in sorted(before & now)
    ]
    results += [
        TestComparison(test, None, False, "is not in this session") for test in sorted(before - now)
    ]
    results += [
        TestComparison(test, None, False, "is not in the baseline") for test in sorted(now - before)
    ]
    return results


def compare_test(
    test: str, old: list[Row], new: list[Row], *, tolerance: float | None
) -> TestComparison:
    """One test: what changed, and whether that is a regression."""
    comparison = compare(old, new)
    difference = comparison.difference.mean
    missing = comparison.missing_in_b.count
    note = f"; {plural(missing, 'baseline sample')} missing" if missing else ""
    if difference is None:
        return TestComparison(test, comparison, False, f"no sample is judged in both{note}")
    words = f"{number(difference, signed=True)} over {plural(comparison.pairs, 'pair')}"
    if tolerance is None:
        return TestComparison(
            test,
            comparison,
            is_significant(comparison),
            f"{words}, {comparison.conclusion}{_advice(comparison)}{note}",
        )
    beyond = is_beyond(difference, tolerance)
    side = "more than" if beyond else "within"
    words += f", {side} the tolerance of {number(tolerance, beside=-difference)}"
    return TestComparison(test, comparison, beyond, words + note)


def is_significant(comparison: Comparison) -> bool:
    """The gate without a tolerance: a fall that chance does not explain."""
    return comparison.conclusion is Conclusion.WORSE


def is_beyond(difference: float, tolerance: float) -> bool:
    """The gate with a tolerance: a fall that is larger."""
    return -difference > tolerance + NOISE


def _advice(comparison: Comparison) -> str:
    mean = comparison.difference.mean
    if comparison.conclusion is Conclusion.TOO_FEW and mean is not None and mean < 0:
        return " (--assay-tolerance can say how far it may fall)"
    return ""


def _by_test(summary: Path) -> dict[str, list[Row]]:
    """Narrow rows only: whole samples are read one at a time and let go."""
    found: dict[str, list[Row]] = {}
    repeats: dict[tuple[str, str], int] = {}
    for sample in read_rows(summary):
        test = str((sample.model_extra or {}).get("test"))
        repeat = repeats.get((test, sample.id), 0)
        repeats[test, sample.id] = repeat + 1
        found.setdefault(test, []).append(_row(sample, repeat))
    return found


def _row(sample: Sample, repeat: int) -> Row:
    return Row(sample.id, repeat, sample.reward, sample.reward is not None)
