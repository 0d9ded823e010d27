"""Copies of a question count once; near-duplicates are counted beside."""

import asyncio
from pathlib import Path

import pytest

from assay.certify import certify, check_provable, report_plan
from assay.certify.near_duplicates import Questions, find_duplicates
from assay.errors import ConfigError
from assay.types import Sample
from certifying import planned, profile


def found(*prompts: str, truths: list[str] | None = None) -> Questions:
    expected = truths or ["4"] * len(prompts)
    return find_duplicates(
        Sample(id=str(n), prompt=prompt, ground_truth=truth)
        for n, (prompt, truth) in enumerate(zip(prompts, expected, strict=True))
    )


@pytest.mark.parametrize(
    "form",
    [
        "What is 2 + 2?",
        "Question {}: What is 2 + 2?",
        "{}. What is 2 + 2?",
        "[{}] What is 2 + 2?",
        "What is 2 + 2? ({})",
        "What is 2 + 2? #{}",
        "What is 2 + 2? (variant {})",
        "What is 2 + 2? Copy {}.",
        "What is 2 + 2? 0badf00d-0000-4000-8000-{:012d}",
    ],
)
def test_299_copies_are_one_question(form: str) -> None:
    questions = found(*(form.format(n) for n in range(299)))

    assert (questions.samples, questions.distinct) == (299, 1)


def test_case_spaces_and_marks_make_no_other_question() -> None:
    unseen = "What is\u200b 2 + 2?\u2060"
    questions = found(
        "What is 2 + 2?", "what  is 2 + 2", "WHAT IS\t2 + 2 !", "“What is 2 + 2”", unseen
    )

    assert questions.distinct == 1
    assert questions.same_as == {"1": "0", "2": "0", "3": "0", "4": "0"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 17 * 23?", "What is 17 + 23?"),
        ("Convert 3.5 km to m.", "Convert 35 km to m."),
        ("Is 7 prime?", "Is 17 prime?"),
        ("Name a city in Italy.", "Name a city in Spain."),
    ],
)
def test_other_questions_stay_others(one: str, other: str) -> None:
    assert found(one, other).distinct == 2


def test_a_change_of_spelling_alone_is_another_question_where_the_answer_is_another() -> None:
    assert found("Is 'A' a capital?", "Is 'a' a capital?", truths=["yes", "no"]).distinct == 2
    assert found("Is it?", "Is it?", truths=["yes", "no"]).distinct == 1


def test_texts_beside_the_question_are_a_part_of_it() -> None:
    rows = [{"id": n, "question": "Sum up.", "document": text} for n, text in enumerate("aab")]
    samples = [Sample(id=str(row["id"]), prompt="Sum up.", input=row) for row in rows]

    assert find_duplicates(samples).same_as == {"1": "0"}


def test_near_duplicates_are_counted_and_count() -> None:
    long = "Please tell me in one word only and without any detour the capital city of {} {}"

    numbered = found("Is 7 odd?", "Is 17 odd?", "Is 27 odd?")
    reworded = found(long.format("France", "now"), long.format("France", "today"), "Is it so?")

    assert (numbered.distinct, numbered.near) == (3, 2)
    assert (reworded.distinct, reworded.near) == (3, 1)


@pytest.mark.parametrize(("words", "others"), [(12, 1), (20, 4), (60, 12)])
def test_one_other_word_in_five_makes_a_near_duplicate(words: int, others: int) -> None:
    one = [f"word{n}" for n in range(words)]
    for start in range(0, words - others, 3):
        other = one.copy()
        other[start : start + others] = [f"else{n}" for n in range(others)]
        unlike = [f"{word}s" for word in one[: words // 2]] + one[words // 2 :]

        near = found(*(" ".join(each) for each in (one, other, unlike)), truths=["a", "b", "c"])

        assert (near.distinct, near.near) == (3, 1)


def copies(folder: Path, rows: int) -> None:
    lines = [f'{{"id": "q{n}", "question": "Say 1", "expected": "1"}}\n' for n in range(rows)]
    (folder / "golden.jsonl").write_text("".join(lines))


def test_long_runs_of_spaces_take_no_longer() -> None:
    """Tried at every place, these would take hours."""
    assert found(f"What is it ({' ' * 2_000_000}?").distinct == 1


@pytest.mark.parametrize(
    "other",
    [
        "What's the capital of France?",
        "What is the capital city of France?",
        "Please: what is the capital of France?",
        "What is the capital of Frankreich?",
    ],
)
def test_a_short_question_with_one_other_word_is_a_near_duplicate(other: str) -> None:
    one = "What is the capital of France?"

    assert found(one, other, truths=["Paris", "Paris"]).near == 1
    assert found(one, other, truths=["Paris", "Rome"]).near == 0


def test_copies_are_told_before_anything_runs(tmp_path: Path) -> None:
    copies(tmp_path, 299)

    plan = planned(tmp_path)

    assert plan.golden.describe().size == "299 samples, 1 distinct question"
    assert [notice.code for notice in plan.notices][-1] == "duplicate_questions"
    assert "298 of 299 samples repeat a question" in plan.notices[-1].text
    assert not report_plan(plan).criteria[0].provable


def test_copies_prove_no_more_than_one_of_them(tmp_path: Path) -> None:
    copies(tmp_path, 40)

    result = asyncio.run(
        certify(planned(tmp_path, profile(expected_latency_ms=60_000)), store=tmp_path / "s.db")
    )

    assert [each.evidence for each in result.outcomes] == ["inconclusive", "inconclusive"]
    assert [each.samples for each in result.outcomes] == [1, 1]
    assert (result.dataset.rows, result.dataset.distinct) == (40, 1)


def test_what_copies_would_have_to_prove_is_refused(tmp_path: Path) -> None:
    copies(tmp_path, 299)

    with pytest.raises(ConfigError, match="the dataset has 1 without 298 copies of questions"):
        check_provable(planned(tmp_path, profile(gate="proven")))
