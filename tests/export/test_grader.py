"""The grader to start from really grades."""

import json
from typing import Any

import pytest

from assay.export.exporter import GRADER_STUB


@pytest.mark.parametrize(
    ("answer", "reference", "grade"),
    [(" 42 ", "42", 1.0), ("42", 42, 1.0), ("41", "42", 0.0), (None, None, 0.0)],
)
def test_it_compares_with_the_reference_answer(
    answer: str | None, reference: Any, grade: float
) -> None:
    grader = json.loads(GRADER_STUB)
    scope: dict[str, Any] = {}

    exec(grader["source"], scope)

    assert grader["type"] == "python"
    assert scope["grade"]({"output_text": answer}, {"reference_answer": reference}) == grade
