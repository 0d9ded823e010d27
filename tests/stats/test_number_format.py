"""Words for numbers, and foreign text that stays within its line."""

import math

import pytest

from assay.stats.number_format import (
    clean_text,
    escape_command,
    escape_command_property,
    escape_markdown,
    format_labelled,
    format_metric,
    format_number,
    format_percent,
    format_plural,
    pad_text,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "unknown"),
        (0, "0.000"),
        (0.12345, "0.123"),
        (-2.5, "-2.500"),
        (1234567.0, "1.23457e+06"),
        (math.inf, "never"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_three_decimals(value: float | None, words: str) -> None:
    assert format_number(value) == words


def test_numbers_that_differ_never_look_the_same() -> None:
    assert format_number(0.89996, beside=0.9) == "0.89996"
    assert format_number(0.9, beside=0.89996) == "0.90000"
    assert format_number(0.9, beside=0.9) == "0.900"
    assert format_number(0.5, beside=0.9) == "0.500"


def test_rounding_errors_add_no_digits() -> None:
    assert format_number(0.1 + 0.2, beside=0.3) == "0.300"


def test_a_difference_shows_its_sign() -> None:
    assert format_number(0.25, signed=True) == "+0.250"
    assert format_number(-0.25, signed=True) == "-0.250"
    assert format_number(250000.0, signed=True) == "+250000"


def test_percentages_have_no_needless_digits() -> None:
    assert (format_percent(0.95), format_percent(0.999), format_percent(0)) == (
        "95 %",
        "99.9 %",
        "0 %",
    )


def test_foreign_text_cannot_leave_its_line_or_control_the_terminal() -> None:
    shown = clean_text("a\x1b[31m\nb\u202e\tc", 40)

    assert shown == "a\ufffd[31m b\ufffd c"


def test_foreign_text_is_cut_with_a_mark_by_columns() -> None:
    assert clean_text("abcdef", 6) == "abcdef"
    assert clean_text("abcdefg", 6) == "abcde…"
    assert clean_text("漢字漢字", 5) == "漢字…"
    assert pad_text("漢", 4) == "漢  "
    assert clean_text("漢字", 0) == clean_text("漢字", -3) == pad_text("漢字", -3) == ""


def test_a_long_text_is_cut_in_the_time_that_its_length_takes() -> None:
    # One character after the other would take hours.
    assert clean_text("a" * 3_000_000, 5) == "aaaa…"


def test_long_words_wrap_under_themselves() -> None:
    lines = format_labelled("label", "word " * 30)

    assert len(lines) > 1
    assert lines[0].startswith("label         word")
    assert all(line.startswith(" " * 14 + "word") for line in lines[1:])
    assert max(map(len, lines)) <= 80
    assert format_labelled("alone", "") == ["alone"]


def test_a_percentage_stays_on_one_line() -> None:
    for length in range(40, 66):
        lines = format_labelled("judged", f"{'x' * length} 5 % may be")
        assert "5 %" in lines[0] or "5 %" in lines[1]
        assert " ".join(" ".join(lines).split()) == f"judged {'x' * length} 5 % may be"


def test_a_line_is_as_wide_as_asked() -> None:
    text = "word " * 60

    for width in (60, 200):
        lines = format_labelled("label", text, width=width)
        assert width - 5 <= max(map(len, lines)) <= width


def test_a_metric_has_a_column_for_its_name() -> None:
    assert format_metric("tone", "0.5 (p = 0.1, adjusted 0.2)", width=36) == [
        "  tone         0.5 (p = 0.1,",
        "               adjusted 0.2)",
    ]
    assert format_metric("漢" * 40, "0.5")[0] == f"  {'漢' * 11}…  0.5"


def test_one_is_singular() -> None:
    assert (format_plural(1, "sample"), format_plural(0, "sample")) == ("1 sample", "0 samples")


def test_nothing_in_a_text_is_markup() -> None:
    evil = "a|b\n<img src=x> `c` [d](e) \x1b[31m & @user #1 *y* \u202e"

    assert escape_markdown(evil) == (
        "a\\|b &lt;img src=x> \\`c\\` \\[d\\](e) \ufffd\\[31m &amp; \\@user \\#1 \\*y\\* \ufffd"
    )


def test_a_long_text_is_cut_where_it_can_be_seen() -> None:
    assert escape_markdown("word " * 100, 10) == "word word…"


def test_no_second_command_can_be_smuggled_into_one() -> None:
    assert escape_command("100%\r\n::add-mask::x") == "100%25%0D%0A::add-mask::x"
    assert escape_command_property("a,line=1::b") == "a%2Cline=1%3A%3Ab"
