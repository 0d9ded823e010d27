"""This session against an earlier summary, test by test, paired by sample."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from assay.errors import ConfigError
from assay.stats import (
    Bounds,
    Comparison,
    Conclusion,
    adjust_p_values,
    compare,
    find_shared_bounds,
    format_number,
    format_p_value,
    format_plural,
)
from assay.types import NOISE, Sample, build_label

from .summary_file import read_rows, read_summary_file
from .worker_files import RecordedTest

# The probability that a session fails although no test changed.
_ALPHA = 0.05
_UPDATE_HINT = "write a new baseline with --assay-update-baseline"


@dataclass(frozen=True)
class TestComparison:
    """One test compared with its baseline."""

    __test__ = False

    test: str
    comparison: Comparison | None
    """None when the test is in one of the summaries only, or cannot be compared."""

    regressed: bool
    text: str

    @property
    def problem(self) -> str:
        """Why the comparison fails the test."""
        return self.text if self.comparison is None else f"worse than the baseline: {self.text}"


@dataclass(frozen=True)
class ComparedRow:
    """The fields of a recorded sample that the statistics need."""

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
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Empty: a baseline is about scores."""


def compare_with_baseline(
    baseline: Path, tests: Sequence[RecordedTest], *, tolerance: float | None
) -> list[TestComparison]:
    """Compare each test with the same test of `baseline`, and decide about all of them together.

    A test's own tolerance is used before `tolerance`. The p-values of all tests without one are
    adjusted together, so that a session in which nothing changed fails at most once in twenty
    times, however many tests it has.
    """
    before = {test["test"]: test for test in read_summary_file(baseline)["tests"]}
    now = {test.record.test: test for test in tests}
    results: list[TestComparison] = []
    bounds: dict[str, Bounds | None] = {}
    for test in sorted(before.keys() & now.keys()):
        earlier = before[test].get("config") or {}
        try:
            # A test that was aborted has no configuration to compare.
            bounds[test] = find_shared_bounds(earlier, now[test].record.config or earlier)
        except ConfigError as error:
            results.append(TestComparison(test, None, True, f"{error.message}; {_UPDATE_HINT}"))
    # A test whose baseline has no samples has no pairs.
    compared = dict.fromkeys(bounds, compare([], []))
    # The samples of a test are adjacent in the file, so that they need not be kept in memory.
    by_test = groupby(read_rows(baseline), lambda row: str((row.model_extra or {}).get("test")))
    for test, samples in by_test:
        if test in bounds:
            new = _read_scores(now[test].samples())
            compared[test] = compare(_read_scores(samples), new, bounds=bounds[test])
    for test, comparison in compared.items():
        if before[test].get("judged") and not comparison.baseline_judged:
            raise ConfigError(
                f"the samples of the test {test} are missing beside the summary",
                where=str(baseline),
                hint=_UPDATE_HINT,
            )
    own = {test: now[test].record.tolerance for test in compared}
    allowed = {test: tolerance if own[test] is None else own[test] for test in compared}
    # A tolerance is a fixed rule without a p-value: such tests are not part of the correction.
    adjusted = adjust_together(
        {test: each for test, each in compared.items() if allowed[test] is None}
    )
    for test, comparison in compared.items():
        judged = judge_test(test, comparison, tolerance=allowed[test], adjusted=adjusted.get(test))
        if judged.regressed and judged.comparison is not None:
            labelled = _label_listed_samples(judged.comparison, now[test], baseline)
            judged = replace(judged, comparison=labelled)
        results.append(judged)
    results += [
        TestComparison(test, None, False, "the test is not in this session")
        for test in sorted(before.keys() - now.keys())
    ]
    gone = {_drop_folders(test): test for test in before.keys() - now.keys()}
    for test in sorted(now.keys() - before.keys()):
        text, same = "the test is not in the baseline", gone.get(_drop_folders(test), "")
        # Below another root folder a test has a longer or shorter id; it must not pass unnoticed.
        moved = bool(same) and (test.endswith(f"/{same}") or same.endswith(f"/{test}"))
        if moved:
            text += f", which has {same}: pytest had another root folder; pass --rootdir, or "
            text += _UPDATE_HINT
        results.append(TestComparison(test, None, moved, text))
    return results


def _label_listed_samples(comparison: Comparison, test: RecordedTest, baseline: Path) -> Comparison:
    """Add the questions of the listed samples, whose ids may be hashes."""
    labels = test.read_labels(comparison.listed_ids)
    # Only the baseline has the samples that are missing in this session.
    if gone := comparison.listed_ids - labels.keys():
        labels |= {row.id: build_label(row) for row in read_rows(baseline) if row.id in gone}
    return comparison.model_copy(update={"labels": labels})


def _drop_folders(test: str) -> str:
    file, mark, name = test.partition("::")
    return f"{file.rpartition('/')[2]}{mark}{name}"


def adjust_together(compared: Mapping[str, Comparison]) -> dict[str, float]:
    """Adjust the p-value of each test for the number of tests that were compared."""
    known = {
        test: (comparison.p_value, comparison.smallest_p or 0.0)
        for test, comparison in compared.items()
        if comparison.p_value is not None
    }
    adjusted = adjust_p_values(
        [p_value for p_value, _ in known.values()],
        smallest=[smallest for _, smallest in known.values()],
    )
    return dict(zip(known, adjusted, strict=True))


def judge_test(
    test: str, comparison: Comparison, *, tolerance: float | None, adjusted: float | None = None
) -> TestComparison:
    """Describe the change of a test and decide whether it is a regression.

    The adjusted p-value decides, if given.
    """
    difference = comparison.difference.mean
    missing = comparison.missing_in_b.count
    note = f"; {format_plural(missing, 'baseline sample')} missing" if missing else ""
    others = comparison.missing_in_a.count
    if difference is None and missing and others and comparison.baseline_judged:
        # Other samples, or other ids: nothing was compared, and nobody would notice a fall.
        text = f"no sample of the baseline is in this session; {_UPDATE_HINT}"
        return TestComparison(test, None, True, text)
    if difference is None:
        return TestComparison(test, comparison, False, f"no sample is judged in both{note}")
    words = (
        f"{format_number(difference, signed=True)} over {format_plural(comparison.pairs, 'pair')}"
    )
    if comparison.repeats_words:
        note += f"; repeats differ: {comparison.repeats_words}"
    if tolerance is not None:
        beyond = is_beyond(difference, tolerance)
        side = "more than" if beyond else "within"
        words += f", {side} the tolerance of {format_number(tolerance, beside=-difference)}"
        return TestComparison(test, comparison, beyond, words + note)
    is_small = adjusted is None or adjusted <= _ALPHA + NOISE
    conclusion = str(comparison.conclusion)
    if comparison.conclusion in (Conclusion.WORSE, Conclusion.BETTER) and not is_small:
        # Significant by itself, but to be expected once among so many tests.
        conclusion = f"{Conclusion.NO_DIFFERENCE_SHOWN} among all tests"
    if adjusted is not None:
        p_value = format_p_value(comparison.p_value)
        conclusion += f" (p = {p_value}, adjusted {format_p_value(adjusted)})"
    if comparison.conclusion is Conclusion.TOO_FEW and difference < 0:
        conclusion += " (set --assay-tolerance to allow a drop)"
    regressed = is_significant(comparison) and is_small
    return TestComparison(test, comparison, regressed, f"{words}, {conclusion}{note}")


def is_significant(comparison: Comparison) -> bool:
    """The gate without a tolerance: whether the drop is statistically significant."""
    return comparison.conclusion is Conclusion.WORSE


def is_beyond(difference: float, tolerance: float) -> bool:
    """The gate with a tolerance: whether the drop is larger."""
    return -difference > tolerance + NOISE


def _read_scores(samples: Iterable[Sample]) -> Iterator[ComparedRow]:
    for sample_id, repeats in groupby(samples, lambda sample: sample.id):
        for repeat, sample in enumerate(repeats):
            yield ComparedRow(sample_id, repeat, sample.reward, sample.reward is not None)
