"""Bars and outcomes: what cannot be, and the verdict that outcomes add up to."""

from typing import Any

import pytest
from pydantic import ValidationError

from assay.certify.criteria import CertificationVerdict, CriterionOutcome, verdict_of
from bars import latency_bar, outcome, score_bar

PASSED, WARNED, FAILED, ERROR = CertificationVerdict


def test_the_worst_and_the_goodness_of_a_score_follow_the_direction() -> None:
    grades = score_bar("grade", 4, range=(1, 5))
    faults = score_bar("fault_rate", 0.1, direction="min")

    assert (grades.worst, grades.normalize_score(4)) == (1, 0.75)
    assert (faults.worst, faults.normalize_score(0.25)) == (1.0, 0.75)
    assert (latency_bar().worst, latency_bar().normalize_score(5)) == (None, None)


@pytest.mark.parametrize(
    "fields", [{"range": None}, {"confidence": 1.0}, {"threshold": float("nan")}, {"name": ""}]
)
def test_a_bar_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        score_bar(**{"name": "x", **fields})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "passed", "unscored": 1}, "needs a value over all samples"),
        ({"status": "passed", "samples": 0}, "needs a value over all samples"),
        ({"status": "failed", "value": None}, "needs a value over all samples"),
        ({"status": "passed", "evidence": None}, "needs a value over all samples"),
        ({"status": "error"}, "must not have evidence"),
    ],
)
def test_a_status_without_grounds_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CriterionOutcome.model_validate({**dict(outcome()), **changes})


def strict(status: str) -> CriterionOutcome:
    return {"passed": outcome(), "failed": outcome(right=3), "error": outcome(unscored=1)}[status]


def lenient(status: str) -> CriterionOutcome:
    made = strict(status)
    return made.model_copy(update={"strict": False, "name": f"{status} but lenient"})


@pytest.mark.parametrize(
    ("outcomes", "verdict", "status"),
    [
        ([strict("passed")], PASSED, 0),
        ([strict("passed"), lenient("failed")], WARNED, 0),
        ([strict("passed"), lenient("error")], WARNED, 0),
        ([strict("failed"), strict("passed")], FAILED, 1),
        ([strict("error"), strict("passed"), lenient("failed")], ERROR, 3),
        ([strict("error"), strict("failed")], FAILED, 1),
    ],
)
def test_strict_criteria_decide_and_others_warn(
    outcomes: list[CriterionOutcome], verdict: CertificationVerdict, status: int
) -> None:
    assert verdict_of(outcomes) is verdict
    assert verdict.exit_status == status


def test_there_is_no_verdict_over_nothing() -> None:
    with pytest.raises(ValueError, match="a verdict needs at least one outcome"):
        verdict_of([])


def test_an_outcome_reads_back_from_what_it_wrote() -> None:
    made = outcome(right=29)

    assert CriterionOutcome.model_validate_json(made.model_dump_json()) == made
