"""Which samples are asked for: what is never learned from, and what `--all` changes."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.export.selection import (
    FAILED,
    NOT_JUDGED,
    TOO_LOW,
    RowContent,
    Selection,
    find_exclusion,
)
from assay.types import Boundary, EvaluateResult, Failure, Sample
from make import asked, said, sample

FAILURE = Failure(boundary=Boundary.ENDPOINT, kind="TimeoutError", message="gone")
TRAINING: list[RowContent] = ["answers", "tokens", "pairs", "labels"]


def judged(score: float | None, **fields: Any) -> Sample:
    return sample(asked("?"), said("x"), score=EvaluateResult(score=score), **fields)


@pytest.mark.parametrize("takes", TRAINING)
@pytest.mark.parametrize("valid_only", [True, False])
def test_a_failed_sample_is_never_learned_from(takes: RowContent, valid_only: bool) -> None:
    asked_for = Selection(valid_only=valid_only)

    assert find_exclusion(judged(1.0, failure=FAILURE), asked_for, takes) == FAILED
    assert find_exclusion(judged(1.0, status="failed"), asked_for, takes) == FAILED


def test_a_sample_that_was_not_judged_is_learned_from_only_when_that_is_asked_for() -> None:
    assert find_exclusion(judged(None), Selection(), "answers") == NOT_JUDGED
    assert find_exclusion(judged(None), Selection(valid_only=False), "answers") is None


@pytest.mark.parametrize("takes", ["pairs", "labels"])
def test_what_compares_scores_always_needs_one(takes: RowContent) -> None:
    assert find_exclusion(judged(None), Selection(valid_only=False), takes) == NOT_JUDGED


def test_the_lowest_score_is_a_bound_that_may_be_met() -> None:
    asked_for = Selection(min_score=0.5)

    assert find_exclusion(judged(0.5), asked_for, "answers") is None
    assert find_exclusion(judged(0.49), asked_for, "answers") == TOO_LOW
    # The mean of three votes of 0.7.
    assert find_exclusion(judged(sum([0.7] * 3) / 3), Selection(min_score=0.7), "answers") is None
    assert find_exclusion(judged(None), Selection(min_score=0.5, valid_only=False), "answers") == (
        NOT_JUDGED
    )


def test_a_label_or_a_pair_needs_bad_answers_as_well() -> None:
    assert find_exclusion(judged(0.0), Selection(min_score=0.5), "labels") is None
    assert find_exclusion(judged(0.0), Selection(min_score=0.5), "pairs") is None


def test_a_prompt_that_was_never_tried_is_a_prompt() -> None:
    assert find_exclusion(Sample(prompt="?"), Selection(), "prompts") is None
    assert find_exclusion(Sample(prompt="?"), Selection(), "answers") == NOT_JUDGED


def test_a_prompt_that_failed_is_one_only_when_that_is_asked_for() -> None:
    failed = judged(None, failure=FAILURE)

    assert find_exclusion(failed, Selection(), "prompts") == FAILED
    assert find_exclusion(failed, Selection(valid_only=False), "prompts") is None


def test_a_format_of_whole_samples_holds_failures_when_that_is_asked_for() -> None:
    failed = judged(None, failure=FAILURE)

    assert find_exclusion(failed, Selection(), "samples") == FAILED
    assert find_exclusion(failed, Selection(valid_only=False), "samples") is None


@pytest.mark.parametrize(
    "wrong",
    [{"min_score": float("nan")}, {"margin": float("inf")}, {"margin": -1.0}, {"limit": 0}],
)
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Selection(**wrong)
