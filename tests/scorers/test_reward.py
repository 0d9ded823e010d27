"""`reward_function` alone: plain or async, always a result."""

import asyncio
import inspect

import pytest

from assay.errors import ConfigError, ScorerFault
from assay.scorers import reward_function
from assay.types import EvaluateResult, Sample


def test_whatever_is_allowed_becomes_a_result() -> None:
    @reward_function
    def score(messages: list[str], *, bonus: float = 0.0) -> object:
        """Count."""
        return len(messages) + bonus

    assert score(["a"], bonus=0.5) == EvaluateResult(score=1.5)
    assert score.__doc__ == "Count."


def test_an_async_function_stays_one() -> None:
    @reward_function
    async def score(sample: Sample) -> bool:
        return True

    assert inspect.iscoroutinefunction(score)
    assert asyncio.run(score(Sample(id="a"))) == EvaluateResult(score=1.0)


def test_what_is_no_result_is_a_fault_that_names_the_sample() -> None:
    @reward_function
    def score(sample: Sample) -> str:
        return "good"

    with pytest.raises(ScorerFault, match="returned a str"):
        score(Sample(id="a"))
    with pytest.raises(ScorerFault, match="returned a str"):
        score("not a sample")


def test_a_row_with_its_result_set_is_allowed() -> None:
    @reward_function
    def score(row: Sample) -> Sample:
        row.evaluation_result = EvaluateResult(score=0.25)
        return row

    assert score(Sample(id="a")) == EvaluateResult(score=0.25)


def test_only_functions_can_be_reward_functions() -> None:
    with pytest.raises(ConfigError, match="3 is not a function"):
        reward_function(3)  # type: ignore[arg-type]  # wrong on purpose
