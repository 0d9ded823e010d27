"""`normalize_answer`: which spellings of an answer are the same, and which are not."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.scorers.normalize import is_close, list_numbers, normalize_answer, normalize_number

# Spacing, units, currencies, separators, fractions, digits of other scripts and letters of choices.
MARKED_UP = st.lists(
    st.sampled_from(
        r"\, \; \: \! \quad \hspace{1em} ~ \boxed{ { } \text{ \mathrm{ \frac{ \frac12 \left( "
        r"\right) \( \) \[ \] $ $$ \$ \% % € £ ₹ , . ' ’ _ {,} 1 2 0 00 1,000 1.000,50 e99 E+5 ^ "
        r"10^3 \times \cdot × x * ** __ / 1/3 7/0 - + − ( ) [ ] B (A) km m^2 ^\circ ° ½ ² ٣ ３ 3rd "
        'İ ß ; ! ? " “ ” ` & | ٫ ＄'.split()
    )
    | st.sampled_from([" ", "\n", "\u00a0", "\u2009", "\u200b", "\\ "])
    | st.text(max_size=2),
    max_size=10,
).map("".join)

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
    ("18", r"$\$18$"),
    ("5", "$$5$$"),
    ("5", r"\[ 5 \]"),
    ("5", "5 €"),
    ("5", "$ 5"),
    ("5", "₹5"),
    ("5", "٥"),
    ("50%", "５０％"),
    ("B", "（Ｂ）。"),
    ("90", r"90^{\circ}"),
    ("90°", r"90^\circ"),
    ("1234", r"1\,234"),
    ("1000", r"1.0\times10^{3}"),
    ("0.0015", "1.5 × 10⁻³"),
    ("5 km", r"5\,\mathrm{km}"),
    ("5 km", r"5~\text{ km}"),
    ("5 km", r"\displaystyle 5\ \textbf{\text{km}}"),
    ("(1,2)", r"\left( 1, 2 \right)"),
    ("{1, 2}", r"\{1,2\}"),
    ("[1, 2]", "1, 2"),
    ("(1, 2)", "1,2"),
    ("[5]", "(5)"),
    ("1/2", "½"),
    ("2 1/2", "2½"),
    ("-1/2", r"\frac{-1}{2}"),
    (r"\frac{\pi}{2}", r"\dfrac{\pi}{2}"),
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
    ("1, 234", "1,234"),
    ("( )", "$ $"),
    ("10³", "103"),
    ("2½", "21/2"),
    ("5", r"\,"),
    ("quad", r"\quad"),
    ("(1, 2)", "[1, 2]"),
    (r"$\left[-1, 2\right]$", "(-1, 2)"),
    (r"\,", r"\,"),
    (r"\,", r"\;"),
]

EMPTY = [
    r"\,",
    r"\, \,",
    r"$\ $",
    r"$$ \quad $$",
    r"\boxed{\,}",
    r"\boxed{\ }",
    r"\boxed{}",
    r"\(\;\)",
    r"\text{ }",
    r"\hspace{1em}",
    "\\,\u2009\\,",
    "$ $",
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
    assert is_close(normalize_answer(r"-2\frac13"), -7 / 3)


def test_digits_without_end_are_text() -> None:
    endless = normalize_answer("9" * 100_000)

    assert endless.number is None
    assert endless.same_as(normalize_answer("9" * 100_000))


@pytest.mark.parametrize("written", EMPTY)
def test_spacing_of_latex_is_an_empty_answer(written: str) -> None:
    empty = normalize_answer(written)

    assert (empty.text, empty.number) == ("", None)
    assert not empty.same_as(empty)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$＄\\＼")))
def test_every_text_has_a_spelling_that_equals_itself_unless_empty(text: str) -> None:
    assert normalize_answer(text).same_as(normalize_answer(text)) is bool(text.split())


@given(MARKED_UP, MARKED_UP)
@example(r"\boxed{\,}", "29")
@example(r"\boxed{\ }", r"$\ $")
@example("1e99/3", "12345678901234567890123456789012/7")
def test_equality_is_the_same_both_ways_whatever_the_markup(one: str, other: str) -> None:
    first, second = normalize_answer(one), normalize_answer(other)

    assert first.same_as(first) is (first.text.strip() != "")
    assert first.same_as(second) is second.same_as(first)
    for number in list_numbers(one):
        assert normalize_answer(number).text


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("1e99/3", ["1e99/3"]),
        ("12345678901234567890123456789012/7", ["12345678901234567890123456789012/7"]),
        ("12345678901234567890123456789012/4", ["12345678901234567890123456789012/4"]),
        ("3/4 and 1/3", ["0.75", "1/3"]),
        ("2½ cups", ["2.5"]),
        (r"$\$18$", ["18"]),
        ("3 x 10^2 m", ["3e2"]),
        ("６ 個", ["6"]),
    ],
)
def test_numbers_are_read_from_a_text(written: str, numbers: list[str]) -> None:
    assert list_numbers(written) == numbers


@pytest.mark.parametrize(
    "piece",
    [
        r"\,",
        r"\frac{1}",
        r"\text{",
        "~\\",
        "½",
        "1/2 ",
        "[[",
        "{ ",
        r"1\,234",
        "٥",
        "$ ",
        r"\boxed{",
    ],
)
def test_a_long_answer_takes_linear_time(piece: str) -> None:
    started = time.process_time()

    normalize_answer(piece * 50_000)
    list_numbers(piece * 50_000)

    assert time.process_time() - started < 5


@given(st.integers())
def test_an_integer_equals_its_usual_spellings(value: int) -> None:
    for written in (str(value), f"{value:,}", f"{value}.0", f"${value}", f"{value}%"):
        assert normalize_answer(written).same_as(normalize_number(value))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_equals_what_python_writes(value: float) -> None:
    assert is_close(normalize_answer(repr(value)), value)
