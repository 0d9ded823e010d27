"""What a scorer may return, and what is its fault."""

import math
from fractions import Fraction

import numpy as np
import pytest

from assay.errors import ScorerFault
from assay.scorers import read_outcome
from assay.types import EvaluateResult, Sample

ASKED = Sample(id="a", prompt="2+2?")


@pytest.mark.parametrize(
    ("value", "score"), [(1, 1.0), (0.25, 0.25), (True, 1.0), (False, 0.0), (Fraction(1, 4), 0.25)]
)
def test_a_number_or_a_bool_is_the_score(value: object, score: float) -> None:
    assert read_outcome(value) == EvaluateResult(score=score)


@pytest.mark.parametrize(
    ("value", "score"),
    [(np.bool_(True), 1.0), (np.float32(0.25), 0.25), (np.int64(2), 2.0), (np.array(0.5), 0.5)],
)
def test_a_number_of_numpy_is_the_score(value: object, score: float) -> None:
    assert read_outcome(value) == EvaluateResult(score=score)


@pytest.mark.parametrize(
    "value", [np.array([0.5]), np.array("0.5"), np.array(0.5j), np.array(None)]
)
def test_an_array_of_anything_but_one_number_is_a_fault(value: object) -> None:
    with pytest.raises(ScorerFault, match="the scorer returned a ndarray"):
        read_outcome(value)


def test_a_result_is_taken_as_it_is() -> None:
    result = EvaluateResult(score=0.0, is_score_valid=False)

    assert read_outcome(result) is result


def test_a_sample_with_its_result_set_is_that_result() -> None:
    scored = Sample(id="a", score=EvaluateResult(score=0.5))

    assert read_outcome(scored).reward == 0.5


@pytest.mark.parametrize("value", [None, "1.0", {"score": 1}, [1.0], object(), 1j])
def test_anything_else_is_a_fault_of_the_scorer(value: object) -> None:
    with pytest.raises(ScorerFault, match="the scorer returned"):
        read_outcome(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_a_fault(value: float) -> None:
    with pytest.raises(ScorerFault, match=r"the scorer returned (nan|inf|-inf)"):
        read_outcome(value)


def test_a_sample_without_a_result_is_a_fault() -> None:
    with pytest.raises(ScorerFault, match="without setting its `score`"):
        read_outcome(ASKED)
