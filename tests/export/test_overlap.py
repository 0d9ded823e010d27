"""The guard against training on what is evaluated: what it catches, and what it lets pass."""

import pytest

from assay.errors import ConfigError
from assay.export.overlap import EvaluationTexts
from assay.types import Message, Sample
from make import asked, said, sample

LONG = "A train leaves the old town at noon and arrives two hours later; how fast was it going?"
TRUTH = "the train was going at fifty miles an hour the whole way"


def guard(*prompts: str, truth: str | None = None) -> EvaluationTexts:
    return EvaluationTexts([Sample(id="q", prompt=text, ground_truth=truth) for text in prompts])


def test_the_same_words_in_another_spelling_are_caught() -> None:
    found = guard("What is  7*8?").find_overlap(sample(asked("what is 7*8"), said("56")))

    assert found is not None
    assert str(found) == "the same text as the prompt of q"


def test_a_quotation_inside_a_longer_text_is_caught() -> None:
    quoting = sample(asked("hi"), said(f"Somebody asked me this once: {LONG.upper()} I knew."))

    found = guard(LONG).find_overlap(quoting)

    assert found is not None
    assert found.kind == "13 words in a row"


def test_a_ground_truth_in_the_answer_is_caught() -> None:
    found = guard("?", truth=TRUTH).find_overlap(sample(asked("tell me"), said(f"Well, {TRUTH}")))

    assert found is None
    assert guard("?", truth=TRUTH).find_overlap(sample(asked("tell me"), said(TRUTH))) is not None


def test_other_words_pass() -> None:
    words = LONG.split()
    shuffled = " ".join(sorted(words))

    assert guard(LONG).find_overlap(sample(asked(shuffled), said("no idea"))) is None


def test_short_ground_truths_and_shared_instructions_pass() -> None:
    system = Message(role="system", content=LONG)
    evaluated = [Sample(prompt=[system, asked("one?")], ground_truth="4")]

    texts = EvaluationTexts(evaluated)

    assert texts.find_overlap(sample(system, asked("two?"), said("4"))) is None
    assert texts.find_overlap(sample(asked(LONG), said("4"))) is None


def test_scripts_without_spaces_are_compared_by_the_character() -> None:
    text = "今日の天気はとても良いので散歩に行きましょう"

    assert guard(text).find_overlap(sample(asked(f"彼は{text}と言った"), said("?"))) is not None


def test_fewer_words_in_a_row_can_be_asked_for() -> None:
    evaluated = [Sample(prompt="one two three four five six")]
    quoting = sample(asked("zero one two three four"), said("?"))

    assert EvaluationTexts(evaluated, words=4).find_overlap(quoting) is not None
    assert EvaluationTexts(evaluated, words=5).find_overlap(quoting) is None


def test_an_empty_evaluation_set_guards_nothing_and_is_refused() -> None:
    with pytest.raises(ConfigError, match="is empty"):
        EvaluationTexts([])


def test_a_bound_that_every_text_meets_is_refused() -> None:
    with pytest.raises(ConfigError, match="too few"):
        EvaluationTexts([Sample(prompt="x")], words=2)
