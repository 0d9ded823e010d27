"""Templates: text is never markup, hidden characters are visible, numbers are readable."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

import assay.web
from assay.web.render import (
    build_templates,
    format_age,
    format_count,
    format_difference,
    format_moment,
    format_money,
    format_probability,
    format_score,
    format_seconds,
    format_share,
    format_short,
    quote_for_filter,
    shorten_line,
    show_hidden_characters,
)
from recorded_pages import HOSTILE_TEXTS

WEB = Path(assay.web.__file__).parent


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_text_is_never_markup(text: str) -> None:
    template = build_templates().from_string('<p title="{{ text }}">{{ text }}</p>')

    shown = template.render(text=text)

    assert shown.count("<") == 2
    assert shown.count('"') == 2


def test_hidden_characters_are_shown_as_code_points() -> None:
    assert show_hidden_characters("a\u202eb\x1b[2J\u200b") == "a<U+202E>b<U+001B>[2J<U+200B>"
    assert (
        show_hidden_characters("漢字 ع é 👩\u200d🚀 tab\t line\n")
        == "漢字 ع é 👩\u200d🚀 tab\t line\n"
    )
    assert show_hidden_characters(Markup("<b>")) == "<b>"
    assert show_hidden_characters(5) == 5


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        build_templates().from_string("{{ missing }}").render()


def test_no_template_switches_escaping_off() -> None:
    texts = {path.name: path.read_text("utf-8") for path in WEB.rglob("templates/*.html")}

    assert texts
    for name, text in texts.items():
        for forbidden in (
            "safe",
            "autoescape",
            "Markup",
            "<style",
            " style=",
            " onclick",
            "onload",
        ):
            assert (name, forbidden in text.replace("unsafe", "")) == (name, False)
        scripts = text.count("<script")
        assert scripts == text.count('<script type="module" src="/static/')


def test_scripts_make_no_markup_of_text() -> None:
    for path in WEB.rglob("static/*.js"):
        text = path.read_text("utf-8")
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert (path.name, forbidden in text) == (path.name, False)


def test_scripts_and_styles_are_small() -> None:
    assert sum(path.stat().st_size for path in (WEB / "static").iterdir()) <= 150_000


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_count(1234567), "1,234,567"),
        (format_count(None), "unknown"),
        (format_short(999), "999"),
        (format_short(1_234_567), "1.23 M"),
        (format_short(None), "unknown"),
        (format_score(0.5), "0.500"),
        (format_score(None), "unscored"),
        (format_difference(0.0214), "+0.021"),
        (format_difference(-0.0214), "−0.021"),
        (format_difference(0.0001), "±0.000"),
        (format_difference(None), "unknown"),
        (format_money(0.0), "$0.00"),
        (format_money(1234.5), "$1,234.50"),
        (format_money(0.0176), "$0.0176"),
        (format_money(0.00008), "$0.00008"),
        (format_money(1e-12), "< $0.0000001"),
        (format_money(None), "unknown"),
        (format_seconds(0.0123), "12 ms"),
        (format_seconds(2.06), "2.1 s"),
        (format_seconds(200), "3 min 20 s"),
        (format_seconds(7500), "2 h 5 min"),
        (format_seconds(float("inf")), "over 1 h"),
        (format_seconds(None), "unknown"),
        (format_probability(0.03124), "0.0312"),
        (format_probability(0.0001), "0.0001"),
        (format_probability(0.00009), "< 0.0001"),
        (format_probability(0.0), "< 0.0001"),
        (format_probability(None), "unknown"),
        (format_share(0.125), "12.5 %"),
        (format_share(None), "unknown"),
        (format_moment("2026-02-14T09:30:10+01:00"), "2026-02-14 08:30"),
        (format_moment(0.0), "1970-01-01 00:00"),
        (format_moment("yesterday"), "unknown"),
        (format_moment(None), "unknown"),
        (shorten_line("a\n b  c", 5), "a b c"),
        (shorten_line("a\n b  cd", 5), "a b …"),
        (quote_for_filter('a"b\\c…'), '"a\\"b\\\\c"'),
    ],
)
def test_numbers_and_times_are_readable(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=1, hours=14), "2 days ago"),
    ],
)
def test_ages_are_rounded(ago: timedelta, text: str) -> None:
    assert format_age((datetime.now(UTC) - ago).isoformat()) == text


def test_an_old_time_is_a_date() -> None:
    assert format_age("2020-01-02T03:04:05Z") == "2020-01-02"
    assert format_age("no time") == "unknown"
