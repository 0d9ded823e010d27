"""`normalize_answer`: which spellings of an answer are the same, and which are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.scorers.normalize import is_close, normalize_answer, normalize_number

SAME = [
    ("Paris", "  paris. "),
    ("New  York", "new\nyork"),
    ("Paris", '"Paris"'),
    ("Paris", "**Paris**!"),
    ("Paris", "`Paris`,"),
    ("A", "(A)"),
    ("Paris", r"\text{Paris}"),
    ("Straße", "STRASSE"),
    ("e\u0301", "\u00e9"),
    ("29", "$29.00"),
    ("29", "29."),
    ("-5", "\u22125"),
    ("-5", "-$5"),
    ("-5", "$-5"),
    ("1000", "1,000"),
    ("1000000", "1,000,000.00"),
    ("1000", r"1{,}000"),
    ("1000", "1e3"),
    ("0.5", ".5"),
    ("50", "50%"),
    ("50 %", r"50\%"),
    ("29", "$29$"),
    ("007", "007."),
]

DIFFERENT = [
    ("Paris", "Paris, France"),
    ("Paris", "Paris London"),
    ("0.5", "50%"),
    ("7", "007"),
    ("100", "1,00"),
    ("1000", "1,00,0"),
    ("1 2", "12"),
    ("10²", "102"),
    ("1/2", "2/4"),
    ("5", "5 million"),
    ("5", "5 6"),
    ("--5", "5"),
    ("C++", "C"),
    ("C#", "C"),
    ("", ""),
    (" ", "\n"),
    ("!", "?"),
    ("-", "+"),
    (".", ","),
    ("$", "%"),
    ("(a)(b)", "a)(b"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_answer_are_the_same(one: str, other: str) -> None:
    assert normalize_answer(one).same_as(normalize_answer(other))
    assert normalize_answer(other).same_as(normalize_answer(one))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_answers_stay_different(one: str, other: str) -> None:
    assert not normalize_answer(one).same_as(normalize_answer(other))
    assert not normalize_answer(other).same_as(normalize_answer(one))


def test_numbers_beyond_a_float_are_compared_digit_by_digit() -> None:
    assert normalize_answer("90071992547409930").same_as(normalize_number(90071992547409930))
    assert not normalize_answer("90071992547409931").same_as(normalize_number(90071992547409930))


def test_a_float_is_compared_up_to_the_digits_it_holds() -> None:
    assert is_close(normalize_answer("0.3"), 0.1 + 0.2)
    assert not is_close(normalize_answer("0.3001"), 0.3)
    assert not is_close(normalize_answer("a third"), 0.3)


def test_digits_without_end_are_text() -> None:
    endless = normalize_answer("9" * 100_000)

    assert endless.number is None
    assert endless.same_as(normalize_answer("9" * 100_000))


@given(st.text())
def test_every_text_has_a_spelling_that_equals_itself_unless_empty(text: str) -> None:
    assert normalize_answer(text).same_as(normalize_answer(text)) is bool(text.split())


@given(st.integers())
def test_an_integer_equals_its_usual_spellings(value: int) -> None:
    for written in (str(value), f"{value:,}", f"{value}.0", f"${value}", f"{value}%"):
        assert normalize_answer(written).same_as(normalize_number(value))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_equals_what_python_writes(value: float) -> None:
    assert is_close(normalize_answer(repr(value)), value)
