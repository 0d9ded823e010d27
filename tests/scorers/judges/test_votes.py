"""From votes to a result: means, agreement, majorities, and what is not judged."""

from typing import Any

import pytest

from assay.scorers import Rubric
from assay.scorers.judges.evidence import QuoteIndex
from assay.scorers.judges.judge_reply import JudgeReply, Opinion
from assay.scorers.judges.judged_transcript import render_transcript
from assay.scorers.judges.panel import Vote
from assay.scorers.judges.votes import build_judge_result, compute_agreement
from assay.types import EvaluateResult
from judge_answers import DONE, conversation

MATERIAL = QuoteIndex(render_transcript(conversation(), longest=10_000))
BROKEN: Vote[JudgeReply] = Vote("a", JudgeReply(), "no JSON")


def vote(judge: str, /, *quotes: str, **scores: float | None) -> Vote[JudgeReply]:
    opinions = {
        name: Opinion(score, f"{judge} says {score}", quotes) for name, score in scores.items()
    }
    return Vote(judge, JudgeReply(opinions))


def result(*votes: Vote[JudgeReply], rubric: Rubric = DONE) -> EvaluateResult:
    return build_judge_result(rubric, votes, MATERIAL)


def two(**second: Any) -> Rubric:
    return Rubric.model_validate(
        {
            "name": "two",
            "description": "x",
            "criteria": [
                {"name": "done", "description": "x", "weight": 3},
                {"name": "neat", "description": "x", **second},
            ],
        }
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((), None), ((0.5,), None), ((1, 1), 1.0), ((1, 0), 0.0), ((1, 1, 0), pytest.approx(1 / 3))],
)
def test_agreement_is_the_share_of_pairs_for_verdicts(scores: Any, expected: Any) -> None:
    assert compute_agreement(scores) == expected


def test_each_judge_counts_the_same_however_often_it_was_usable() -> None:
    found = result(vote("a", done=1), vote("a", done=1), vote("b", done=0), BROKEN)

    assert found.score == 0.5
    extra = found.metrics["done"].model_extra or {}
    assert extra["agreement"] == pytest.approx(1 / 3)
    assert extra["split"] is True
    assert [each["score"] for each in extra["opinions"]] == [1, 1, 0]


def test_weights_make_the_score() -> None:
    assert result(vote("a", done=1, neat=0), rubric=two()).score == 0.75


def test_half_of_the_votes_is_no_majority() -> None:
    found = result(vote("a", done=1), BROKEN)

    assert (found.score, found.reward, found.is_score_valid) == (None, None, False)
    assert found.error == "no majority of usable votes on done: no JSON"
    assert found.metrics["done"].score is None


def test_without_any_usable_vote_nothing_is_scored() -> None:
    found = result(BROKEN)

    assert found.reward is None
    assert found.metrics["done"].reason == "no judge gave a usable answer"


def test_a_criterion_that_does_not_apply_is_not_judged_and_no_failure() -> None:
    found = result(vote("a", done=None))

    assert (found.reward, found.error) == (None, None)
    assert found.metrics["done"].reason == "a says None"


def test_an_optional_criterion_that_does_not_apply_is_left_out_of_the_score() -> None:
    optional = result(vote("a", done=1, neat=None), rubric=two(optional=True))
    needed = result(vote("a", done=1, neat=None), rubric=two())

    assert (optional.score, optional.metrics["neat"].score) == (1.0, None)
    assert needed.reward is None
    assert needed.error is None


def test_an_optional_criterion_nobody_answered_is_still_a_failure() -> None:
    found = result(vote("a", done=1), rubric=two(optional=True))

    assert found.reward is None
    assert "neat" in str(found.error)


def test_judges_that_disagree_whether_it_applies_leave_it_open() -> None:
    found = result(vote("a", done=1), vote("b", done=None))

    assert found.reward is None
    assert "do not agree whether it can be judged" in str(found.error)


def test_the_reason_is_that_of_the_nearest_opinion() -> None:
    found = result(vote("a", done=0), vote("b", done=0.9), vote("c", done=1))

    assert found.metrics["done"].reason == "b says 0.9"


def test_quotes_that_are_not_in_the_transcript_are_flagged() -> None:
    metric = result(vote("a", "All done.", "Made up.", done=1)).metrics["done"]

    assert (metric.model_extra or {})["evidence"] == [
        {"quote": "All done.", "turns": [2]},
        {"quote": "Made up.", "turns": []},
    ]
    assert str(metric.reason).endswith("[1 of 2 quotes not found in the transcript]")
