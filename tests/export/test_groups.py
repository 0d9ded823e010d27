"""Groups: who belongs together though apart in the file, and who never does."""

from typing import Any

from assay.export.groups import AnswerGroups, compute_group_key
from assay.types import EvaluateResult, Sample
from make import asked, said, sample


def answer(question: str, words: str, score: float | None = None, **fields: Any) -> Sample:
    return sample(asked(question), said(words), score=EvaluateResult(score=score), **fields)


def key(given: Sample) -> bytes:
    return compute_group_key(given, same_context=False)


def test_answers_to_one_input_are_a_group_wherever_they_stand() -> None:
    with AnswerGroups() as groups:
        for given in (
            answer("a", "a0", 0.2, id="1"),
            answer("b", "b0", 0.5, id="2"),
            answer("a", "a1", 0.9, id="1"),
            answer("a", "a2", 0.1, id="1"),
        ):
            groups.add(key(given), given)
        first, second = groups

    assert (first.best.response, first.others) == ("a1", ("1",))
    assert first.worst is not None
    assert first.worst.response == "a2"
    assert (second.best.response, second.worst, second.others) == ("b0", None, ())


def test_the_first_of_equals_is_the_best_and_none_is_worse() -> None:
    with AnswerGroups() as groups:
        for words in ("x", "y"):
            given = answer("a", words, 0.5, id="1")
            groups.add(key(given), given)
        (group,) = groups

    assert (group.best.response, group.worst, group.others) == ("x", None, ("1",))


def test_an_answer_that_was_not_judged_is_never_the_best() -> None:
    with AnswerGroups() as groups:
        for given in (answer("a", "unjudged", None, id="1"), answer("a", "bad", -5.0, id="1")):
            groups.add(key(given), given)
        (group,) = groups

    assert group.best.response == "bad"


def test_the_same_id_is_another_input_when_the_question_or_the_test_is() -> None:
    keys = {
        key(answer("a", "x", id="1")),
        key(answer("b", "x", id="1")),
        key(answer("a", "x", id="2")),
        key(answer("a", "x", id="1", test="t.py::one")),
    }

    assert len(keys) == 4


def test_a_group_index_joins_samples_with_ids_of_their_own() -> None:
    left, right = answer("a", "x", id="1", group_index=3), answer("a", "y", id="2", group_index=3)

    assert key(left) == key(right)


def test_what_an_environment_showed_makes_another_context() -> None:
    left = sample(asked("go"), asked("you see a door"), said("open"), id="1")
    right = sample(asked("go"), asked("you see a wall"), said("open"), id="1")

    assert key(left) == key(right)
    assert compute_group_key(left, same_context=True) != compute_group_key(right, same_context=True)
