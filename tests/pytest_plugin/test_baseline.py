"""Against a baseline: what counts as a regression, and what is only said."""

import pytest

from assay.pytest_plugin.baseline import Row, compare_test


def rows(*scores: float | None) -> list[Row]:
    return [Row(f"s{n}", 0, score, score is not None) for n, score in enumerate(scores)]


def test_a_fall_that_chance_does_not_explain_is_a_regression() -> None:
    found = compare_test("t", rows(*[1.0] * 10), rows(*[0.0] * 10), tolerance=None)

    assert found.regressed
    assert found.text == "-1.000 over 10 pairs, worse"


def test_a_fall_that_chance_explains_is_not() -> None:
    found = compare_test("t", rows(*[1.0] * 10), rows(0.0, *[1.0] * 9), tolerance=None)

    assert not found.regressed
    assert found.text == "-0.100 over 10 pairs, no difference shown"


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    found = compare_test("t", rows(1.0, 1.0), rows(0.0, 0.0), tolerance=None)

    assert not found.regressed
    assert found.text == (
        "-1.000 over 2 pairs, too few to tell (--assay-tolerance can say how far it may fall)"
    )


@pytest.mark.parametrize(("tolerance", "regressed"), [(0.0, True), (0.4, True), (0.5, False)])
def test_with_a_tolerance_the_size_decides(tolerance: float, regressed: bool) -> None:
    found = compare_test("t", rows(1.0, 1.0), rows(1.0, 0.0), tolerance=tolerance)

    assert found.regressed is regressed
    assert ("more than" if regressed else "within") in found.text


def test_rising_is_never_a_regression() -> None:
    for tolerance in (None, 0.0):
        found = compare_test("t", rows(*[0.0] * 10), rows(*[1.0] * 10), tolerance=tolerance)
        assert not found.regressed


def test_the_order_of_adding_floats_decides_nothing() -> None:
    found = compare_test("t", rows(0.3), rows(0.1 + 0.2 - 0.1), tolerance=0.1)

    assert not found.regressed


def test_missing_samples_are_counted() -> None:
    found = compare_test("t", rows(1.0, 1.0, 1.0), rows(1.0), tolerance=0.0)

    assert not found.regressed
    assert found.text.endswith("; 2 baseline samples missing")


def test_nothing_in_common_is_said() -> None:
    found = compare_test("t", rows(1.0), rows(None), tolerance=0.0)

    assert (found.regressed, found.text) == (False, "no sample is judged in both")
