"""The verdict on a test: rules that nothing could fulfil are refused before anything runs."""

import pytest

from assay.errors import AssayError
from assay.pytest_plugin.evaluation_record import Record
from assay.pytest_plugin.verdict import has_invalid, read_gate_rule
from assay.stats import GateRule


@pytest.mark.parametrize("threshold", [1, 1.0, True + 0])
def test_a_number_is_the_lowest_mean_that_passes(threshold: float) -> None:
    assert read_gate_rule(threshold) == GateRule(minimum=1.0)


def test_a_rule_is_taken_as_it_is() -> None:
    rule = GateRule(minimum=0.9, proven=True)

    assert read_gate_rule(rule) is rule
    assert read_gate_rule(None) is None


@pytest.mark.parametrize(
    "rule", [GateRule(), GateRule(minimum=0.5, tolerance=0.1), GateRule(tolerance=0.1)]
)
def test_a_rule_without_a_minimum_or_with_a_tolerance_is_refused(rule: GateRule) -> None:
    with pytest.raises(AssayError, match="with a minimum and without a tolerance"):
        read_gate_rule(rule)


def test_an_infinite_threshold_is_refused() -> None:
    with pytest.raises(AssayError, match="threshold is inf"):
        read_gate_rule(float("inf"))


def test_a_single_result_without_a_score_counts() -> None:
    whole = Record(test="t", file="f.py", line=1, results=100, judged=100)

    assert not has_invalid(whole)
    assert has_invalid(Record(test="t", file="f.py", line=1, results=100, judged=99))
