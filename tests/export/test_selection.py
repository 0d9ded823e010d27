"""Which samples are asked for: what is never learned from, and what `--all` changes."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.export.selection import FAILED, NOT_JUDGED, TOO_LOW, Selection, Takes, refusal
from assay.types import Boundary, EvaluateResult, Failure, Sample
from make import asked, said, sample

FAILURE = Failure(boundary=Boundary.ENDPOINT, kind="TimeoutError", message="gone")
TRAINING: list[Takes] = ["answers", "tokens", "pairs", "labels"]


def judged(score: float | None, **fields: Any) -> Sample:
    return sample(asked("?"), said("x"), score=EvaluateResult(score=score), **fields)


@pytest.mark.parametrize("takes", TRAINING)
@pytest.mark.parametrize("valid_only", [True, False])
def test_a_failed_sample_is_never_learned_from(takes: Takes, valid_only: bool) -> None:
    asked_for = Selection(valid_only=valid_only)

    assert refusal(judged(1.0, failure=FAILURE), asked_for, takes) == FAILED
    assert refusal(judged(1.0, status="failed"), asked_for, takes) == FAILED


def test_a_sample_that_was_not_judged_is_learned_from_only_when_that_is_asked_for() -> None:
    assert refusal(judged(None), Selection(), "answers") == NOT_JUDGED
    assert refusal(judged(None), Selection(valid_only=False), "answers") is None


@pytest.mark.parametrize("takes", ["pairs", "labels"])
def test_what_compares_scores_always_needs_one(takes: Takes) -> None:
    assert refusal(judged(None), Selection(valid_only=False), takes) == NOT_JUDGED


def test_the_lowest_score_is_a_bound_that_may_be_met() -> None:
    asked_for = Selection(min_score=0.5)

    assert refusal(judged(0.5), asked_for, "answers") is None
    assert refusal(judged(0.49), asked_for, "answers") == TOO_LOW
    assert refusal(judged(None), Selection(min_score=0.5, valid_only=False), "answers") == (
        NOT_JUDGED
    )


def test_a_label_or_a_pair_needs_bad_answers_as_well() -> None:
    assert refusal(judged(0.0), Selection(min_score=0.5), "labels") is None
    assert refusal(judged(0.0), Selection(min_score=0.5), "pairs") is None


def test_a_prompt_that_was_never_tried_is_a_prompt() -> None:
    assert refusal(Sample(prompt="?"), Selection(), "prompts") is None
    assert refusal(Sample(prompt="?"), Selection(), "answers") == NOT_JUDGED


def test_a_prompt_that_failed_is_one_only_when_that_is_asked_for() -> None:
    failed = judged(None, failure=FAILURE)

    assert refusal(failed, Selection(), "prompts") == FAILED
    assert refusal(failed, Selection(valid_only=False), "prompts") is None


def test_a_format_of_whole_samples_holds_failures_when_that_is_asked_for() -> None:
    failed = judged(None, failure=FAILURE)

    assert refusal(failed, Selection(), "samples") == FAILED
    assert refusal(failed, Selection(valid_only=False), "samples") is None


@pytest.mark.parametrize(
    "wrong",
    [{"min_score": float("nan")}, {"margin": float("inf")}, {"margin": -1.0}, {"limit": 0}],
)
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Selection(**wrong)
