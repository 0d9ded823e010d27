"""Marks: quotes are found regardless of spacing, and no text becomes markup."""

import pytest

from assay.web.text_marks import Mark, build_marks, find_quote, read_excerpt, render_marks

TEXT = "Yes, returns are\n accepted  within “60 days” of delivery."


@pytest.mark.parametrize(
    ("quote", "words"),
    [
        ("returns are accepted", "returns are\n accepted"),
        ('within "60 days" of', "within “60 days” of"),
        ("returns ... delivery", TEXT[5:-1]),
        ("returns […] within", "returns are\n accepted  within"),
        ("\\nreturns are\\naccepted", "returns are\n accepted"),
        ("'Yes, returns'", "Yes, returns"),
    ],
)
def test_a_quote_is_found_regardless_of_spacing(quote: str, words: str) -> None:
    place = find_quote(quote, TEXT)

    assert place is not None
    assert TEXT[place[0] : place[1]] == words


@pytest.mark.parametrize(
    "quote", ["", " ... ", "returns were", "delivery ... returns", "(((", "x" * 9]
)
def test_other_words_are_not_found(quote: str) -> None:
    assert find_quote(quote, TEXT) is None


def test_a_hostile_quote_takes_bounded_time() -> None:
    assert find_quote("a " * 900 + "b", "a " * 10_000) is None


def test_the_excerpt_of_a_check_is_unescaped() -> None:
    assert read_excerpt("text in turn 2: …'it\\'s\\nhere'…", 14) == "it's\nhere"
    assert read_excerpt("turn 2 is empty", 6) is None


def test_marks_do_not_overlap_and_quotes_come_first() -> None:
    marks = build_marks("a lamp and a Lamp", quotes=[("quote-1", "a lamp")], wanted="lamp")

    assert [(mark.start, mark.end, mark.name) for mark in marks] == [
        (0, 6, "quote-1"),
        (13, 17, "find"),
    ]


def test_marked_text_is_escaped() -> None:
    shown = render_marks("<b>\u202ex</b>", [Mark(start=0, end=4, name="find")])

    assert shown == '<mark class="find">&lt;b&gt;&lt;U+202E&gt;</mark>x&lt;/b&gt;'
