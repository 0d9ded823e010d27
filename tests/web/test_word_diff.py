"""Word differences: both texts come back, changes read as words, and time stays bounded."""

import random

import pytest

from assay.web.word_diff import TextChange, diff_words, select_side, split_words


def rebuild(changes: list[TextChange], left_out: str) -> str:
    return "".join(change.text for change in changes if change.kind != left_out)


def test_replaced_and_added_words_are_marked() -> None:
    changes = diff_words("Returned within 30 days.", "Returned within 60 days (policy §4).")

    assert changes == [
        ("same", "Returned within "),
        ("old", "30"),
        ("new", "60"),
        ("same", " days"),
        ("new", " (policy §4)"),
        ("same", "."),
    ]


def test_adjacent_replaced_words_are_one_change() -> None:
    changes = diff_words("Be friendly.", "Quote policies.")

    assert changes == [("old", "Be friendly"), ("new", "Quote policies"), ("same", ".")]


def test_signs_of_scripts_without_spaces_are_words() -> None:
    assert diff_words("三十日", "六十日") == [("old", "三"), ("new", "六"), ("same", "十日")]


@pytest.mark.parametrize("texts", [("", ""), ("", "a"), ("a", ""), ("a b", "a b")])
def test_empty_and_equal_texts(texts: tuple[str, str]) -> None:
    changes = diff_words(*texts)

    assert (rebuild(changes, "new"), rebuild(changes, "old")) == texts


def test_both_texts_can_be_rebuilt_from_any_difference() -> None:
    chance = random.Random(7)
    for _ in range(400):
        old, new = (
            " ".join(chance.choice("abcdefg") for _ in range(chance.randrange(14)))
            for _ in range(2)
        )
        changes = diff_words(old, new)

        assert (rebuild(changes, "new"), rebuild(changes, "old")) == (old, new)


def test_a_change_in_a_long_text_without_unique_words_is_found() -> None:
    chance = random.Random(3)
    words = [chance.choice(("yes", "no", "maybe", "never")) for _ in range(5000)]
    changed = [*words[:2500], "CHANGED", *words[2501:]]

    changes = diff_words(" ".join(words), " ".join(changed))

    assert ("new", "CHANGED") in changes
    assert len(changes) == 4


def test_texts_with_nothing_in_common_are_one_replacement() -> None:
    old, new = "a " * 20_000, "b\n" * 20_000

    assert [change.kind for change in diff_words(old, new)] == ["old", "new"]


def test_long_equal_stretches_of_a_side_are_left_out_and_counted() -> None:
    same = " ".join(f"word{index}" for index in range(500))
    changes = diff_words(f"first {same} last", f"first {same} end")

    parts = select_side(changes, "new")

    left_out = sum(part.left_out for part in parts)
    shown = sum(len(part.text) for part in parts)
    assert left_out > 0
    assert left_out + shown == len(f"first {same} end")
    assert parts[0].text.startswith("first word0")
    assert (parts[-1].kind, parts[-1].text) == ("new", "end")


def test_an_unchanged_answer_is_shown_whole() -> None:
    text = " ".join(f"word{index}" for index in range(500))

    assert [part.text for part in select_side(diff_words(text, text), "new")] == [text]


def test_words_joined_are_the_text() -> None:
    text = "A_b, 'c'  \n\u202e日本 x1"

    assert "".join(split_words(text)) == text
