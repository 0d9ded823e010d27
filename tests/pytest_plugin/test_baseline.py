"""Against a baseline: what counts as a regression, and what is only said."""

from dataclasses import replace

import pytest

from assay.pytest_plugin.baseline import (
    ComparedRow,
    TestComparison,
    adjust_together,
    judge_test,
)
from assay.stats import Comparison, compare


def rows(*scores: float | None) -> list[ComparedRow]:
    return [ComparedRow(f"s{n}", 0, score, score is not None) for n, score in enumerate(scores)]


def compare_test(
    old: list[ComparedRow], new: list[ComparedRow], *, tolerance: float | None
) -> TestComparison:
    return judge_test("t", compare(old, new), tolerance=tolerance)


def test_a_fall_that_chance_does_not_explain_is_a_regression() -> None:
    found = compare_test(rows(*[1.0] * 10), rows(*[0.0] * 10), tolerance=None)

    assert found.regressed
    assert found.text == "-1.000 over 10 pairs, worse"


def test_a_fall_that_chance_explains_is_not() -> None:
    found = compare_test(rows(*[1.0] * 10), rows(0.0, *[1.0] * 9), tolerance=None)

    assert not found.regressed
    assert found.text == "-0.100 over 10 pairs, no difference shown"


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    found = compare_test(rows(1.0, 1.0), rows(0.0, 0.0), tolerance=None)

    assert not found.regressed
    assert found.text == (
        "-1.000 over 2 pairs, too few to tell (set --assay-tolerance to allow a drop)"
    )


@pytest.mark.parametrize(("tolerance", "regressed"), [(0.0, True), (0.4, True), (0.5, False)])
def test_with_a_tolerance_the_size_decides(tolerance: float, regressed: bool) -> None:
    found = compare_test(rows(1.0, 1.0), rows(1.0, 0.0), tolerance=tolerance)

    assert found.regressed is regressed
    assert ("more than" if regressed else "within") in found.text


def test_rising_is_never_a_regression() -> None:
    for tolerance in (None, 0.0):
        found = compare_test(rows(*[0.0] * 10), rows(*[1.0] * 10), tolerance=tolerance)
        assert not found.regressed


def test_the_order_of_adding_floats_decides_nothing() -> None:
    found = compare_test(rows(0.3), rows(0.1 + 0.2 - 0.1), tolerance=0.1)

    assert not found.regressed


def test_missing_samples_are_counted() -> None:
    found = compare_test(rows(1.0, 1.0, 1.0), rows(1.0), tolerance=0.0)

    assert not found.regressed
    assert found.text.endswith("; 2 baseline samples missing")


def test_nothing_in_common_is_said() -> None:
    found = compare_test(rows(1.0), rows(None), tolerance=0.0)

    assert (found.regressed, found.text) == (False, "no sample is judged in both")
    aborted = compare_test(rows(1.0), [], tolerance=0.0)
    assert not aborted.regressed


def test_a_baseline_of_other_samples_compares_nothing_and_fails() -> None:
    other = [replace(row, sample_id=f"new-{row.sample_id}") for row in rows(1.0, 1.0)]
    for tolerance in (None, 0.5):
        found = compare_test(rows(1.0, 1.0), other, tolerance=tolerance)

        assert found.regressed
        assert found.problem == (
            "no sample of the baseline is in this session; "
            "write a new baseline with --assay-update-baseline"
        )


def fallen(samples: int, of: int) -> Comparison:
    return compare(rows(*[1.0] * of), rows(*[0.0] * samples, *[1.0] * (of - samples)))


def test_a_fall_that_one_of_many_tests_may_show_by_chance_is_no_regression() -> None:
    """Forty tests in each of which seven samples moved: one where all seven fell is chance."""
    noisy = compare(rows(*[1.0] * 4, *[0.0] * 3), rows(*[0.0] * 4, *[1.0] * 3))
    compared = {"fell": fallen(7, of=7), **{f"t{n}": noisy for n in range(39)}}

    adjusted = adjust_together(compared)
    found = judge_test("fell", compared["fell"], tolerance=None, adjusted=adjusted["fell"])

    assert not found.regressed
    assert found.text == (
        "-1.000 over 7 pairs, no difference shown among all tests (p = 0.0156, adjusted 0.6250)"
    )


def test_tests_in_which_nothing_moved_do_not_hide_a_regression() -> None:
    compared = {"fell": fallen(7, of=10), **{f"t{n}": fallen(1, of=10) for n in range(39)}}

    adjusted = adjust_together(compared)
    found = judge_test("fell", compared["fell"], tolerance=None, adjusted=adjusted["fell"])

    assert found.regressed
    assert found.text == "-0.700 over 10 pairs, worse (p = 0.0156, adjusted 0.0156)"


def test_a_large_fall_is_a_regression_among_many_noisy_tests() -> None:
    noisy = compare(rows(*[1.0] * 10, *[0.0] * 10), rows(*[0.0] * 10, *[1.0] * 10))
    compared = {"fell": fallen(15, of=20), **{f"t{n}": noisy for n in range(39)}}

    adjusted = adjust_together(compared)

    assert judge_test("fell", compared["fell"], tolerance=None, adjusted=adjusted["fell"]).regressed
    quiet = judge_test("t0", compared["t0"], tolerance=None, adjusted=adjusted["t0"])
    assert quiet.text == "+0.000 over 20 pairs, no difference shown (p = 1.0000, adjusted 1.0000)"


def test_a_test_without_pairs_has_no_p_value() -> None:
    assert adjust_together({"t": compare(rows(1.0), rows(None))}) == {}


def test_repeats_that_differ_are_said() -> None:
    old = rows(*[1.0] * 8)
    new = [
        ComparedRow(f"s{n}", repeat, float(repeat > 0), True)
        for n in range(8)
        for repeat in range(20)
    ]

    found = compare_test(old, new, tolerance=None)

    assert not found.regressed
    assert found.text.endswith("; repeats differ: 1 in the first run, 20 in the second")
