"""What an agent under test is shown: everything but the answer."""

from typing import Any

import pytest

from assay.certification.agents import question_of
from assay.models import EvaluateResult, Sample


@pytest.mark.parametrize(
    "row",
    [
        {"question": "?", "expected": "4"},
        {"question": "?", "answer": "4", "note": "4"},
        {"question": "?", "reward_model": {"ground_truth": "4"}},
    ],
)
def test_the_expected_answer_is_not_shown(row: dict[str, Any]) -> None:
    sample = Sample(prompt="?", ground_truth="4", input=row, score=EvaluateResult(score=1))

    question = question_of(sample)

    assert (question.ground_truth, question.score) == (None, None)
    assert question.input == {"question": "?"}
    assert sample.ground_truth == "4"
