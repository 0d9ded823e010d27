"""The user's function: what one sample does must not end the others."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from assay.errors import ScorerFault
from assay.pytest_plugin.scorer_call import UserFunction
from assay.scorers import read_call_spec
from assay.types import EvaluateResult, Sample

SAMPLE = Sample(input={"question": "1+1?", "level": 3}, prompt="1+1?", ground_truth="2")


def user(function: Callable[..., Any], **fixtures: Any) -> UserFunction:
    return UserFunction(function, read_call_spec(function, given=fixtures), fixtures)


def test_it_is_given_what_it_names_and_its_fixtures() -> None:
    def judge(ground_truth: str, level: int, judge: str, **rest: object) -> object:
        return ground_truth, level, judge, rest

    assert user(judge, judge="a fixture").score_sample(SAMPLE) == (
        "2",
        3,
        "a fixture",
        {"question": "1+1?"},
    )


def test_a_fixture_wins_over_a_field_of_the_same_name() -> None:
    def judge(level: int, **rest: object) -> object:
        return level, rest

    assert user(judge, level="fixture").score_sample(SAMPLE) == ("fixture", {"question": "1+1?"})


def test_a_failed_assertion_is_a_score_of_0_with_the_assertion_as_reason() -> None:
    def judge(ground_truth: str) -> object:
        assert ground_truth == "3"
        return 1.0

    async def judge_later(ground_truth: str) -> object:
        return judge(ground_truth)

    plain, later = user(judge), user(judge_later)

    for found in (plain.score_sample(SAMPLE), asyncio.run(_awaited(later.score_sample(SAMPLE)))):
        assert isinstance(found, EvaluateResult)
        assert (found.score, found.is_score_valid) == (0.0, True)
        assert (found.reason or "").startswith("assert '2' == '3'")
    assert (plain.assertions.count, later.assertions.count) == (1, 1)


def test_any_other_exception_is_no_verdict() -> None:
    def judge(ground_truth: str) -> object:
        raise ValueError("cannot read it")

    with pytest.raises(ValueError, match="cannot read it"):
        user(judge).score_sample(SAMPLE)


ENDINGS: list[Callable[[], object]] = [
    lambda: pytest.fail("no"),
    lambda: pytest.skip("no"),
    lambda: sys.exit("no"),
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_would_end_the_test_is_a_fault_of_one_sample(ending: Callable[[], object]) -> None:
    def judge(sample: Sample) -> object:
        return ending()

    async def judge_later(sample: Sample) -> object:
        return ending()

    with pytest.raises(ScorerFault, match=r"the function ended with .*: no"):
        user(judge).score_sample(SAMPLE)
    with pytest.raises(ScorerFault, match=r"the function ended with .*: no"):
        asyncio.run(_awaited(user(judge_later).score_sample(SAMPLE)))


async def _awaited(value: object) -> object:
    return await cast(Awaitable[object], value)


def test_an_interrupt_passes_through() -> None:
    def judge(sample: Sample) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        user(judge).score_sample(SAMPLE)
