"""Rubrics: what they refuse, and what tells two of them apart."""

from typing import Any

import pytest
from pydantic import ValidationError

from assay.scorers import Rubric

PLAIN: dict[str, Any] = {
    "name": "short",
    "description": "Is it short?",
    "criteria": [{"name": "short", "description": "Is it?"}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"criteria": []},
        {"criteria": [{"name": "Not a name", "description": "x"}]},
        {"criteria": [{"name": "a", "description": "x", "weight": 0}]},
        {"criteria": [{"name": "a", "description": "x", "weight": float("nan")}]},
        {"criteria": [{"name": "a", "description": "x", "levels": {2: "too much"}}]},
        {"criteria": [{"name": "a", "description": "x"}, {"name": "a", "description": "y"}]},
        {"threshold": 1.5},
        {"colour": "red"},
    ],
)
def test_a_rubric_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Rubric.model_validate({**PLAIN, **change})


def test_another_wording_is_another_digest() -> None:
    one = Rubric.model_validate(PLAIN)
    other = Rubric.model_validate({**PLAIN, "description": "Is it brief?"})

    assert one.digest == Rubric.model_validate(PLAIN).digest
    assert one.digest != other.digest


def test_leaving_subagents_out_is_another_digest() -> None:
    plain = Rubric.model_validate(PLAIN)

    assert plain.subagents
    assert Rubric.model_validate({**PLAIN, "subagents": True}).digest == plain.digest
    assert Rubric.model_validate({**PLAIN, "subagents": False}).digest != plain.digest
