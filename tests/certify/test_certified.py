"""The result of a certification: what it may be relied on for, and what it cannot say."""

from typing import Any

import pytest
from pydantic import ValidationError

from assay.certify.certified import CertificationResult
from assay.certify.criteria import CertificationVerdict
from bars import certification, outcome

LENIENT = outcome(right=3, name="wording", strict=False)


@pytest.mark.parametrize(
    ("outcomes", "verdict", "certified", "attestable"),
    [
        ((outcome(),), "PASSED", True, True),
        ((outcome(), LENIENT), "WARNED", True, True),
        ((outcome(right=3),), "FAILED", False, True),
        ((outcome(unscored=1),), "ERROR", False, False),
    ],
)
def test_the_verdict_follows_from_the_outcomes(
    outcomes: tuple[Any, ...], verdict: str, certified: bool, attestable: bool
) -> None:
    result = certification(*outcomes)

    assert result.verdict == verdict
    assert (result.certified, result.attestable) == (certified, attestable)


def test_a_run_with_deviations_certifies_nothing() -> None:
    result = certification(deviations=["only 3 samples"])

    assert result.verdict is CertificationVerdict.PASSED
    assert (result.certified, result.attestable) == (False, False)


def test_a_warning_fails_only_when_asked_to() -> None:
    result = certification(outcome(), LENIENT)

    assert result.exit_status() == 0
    assert result.exit_status(fail_on_warn=True) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outcomes": ()}, "at least 1 item"),
        ({"outcomes": (outcome(), outcome())}, "two outcomes have the same name"),
        ({"verdict": "FAILED"}, "does not follow from the outcomes"),
        ({"dataset": {"uri": "x", "sha256": "0" * 64, "rows": 0}}, "greater than or equal to 1"),
        ({"signature": "x"}, "Extra inputs"),
    ],
)
def test_what_does_not_add_up_is_refused(fields: dict[str, Any], message: str) -> None:
    plain = {**dict(certification()), "outcomes": certification().outcomes, **fields}

    with pytest.raises(ValidationError, match=message):
        CertificationResult.model_validate(plain)


def test_a_result_reads_back_from_what_it_wrote() -> None:
    result = certification(outcome(), LENIENT, warnings=[{"code": "self_judge", "text": "x"}])

    assert CertificationResult.model_validate_json(result.model_dump_json()) == result
