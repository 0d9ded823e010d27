"""What every scorer keeps to."""

import pytest

from assay.scorers import Scorer, exact_answer
from assay.types import EvaluateResult
from make import asked, said, sample


@pytest.mark.parametrize("scorer", [exact_answer()])
def test_a_scorer_judges_a_sample_and_leaves_it_as_it_was(scorer: Scorer) -> None:
    four = sample(asked("2 + 2?"), said("4"), ground_truth="4")
    before = four.to_json()

    result = scorer(four)

    assert isinstance(result, EvaluateResult)
    assert result.reason
    assert four.to_json() == before
