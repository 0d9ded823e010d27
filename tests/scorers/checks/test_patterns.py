"""Patterns: RE2's, so that no text makes them slow."""

import importlib.util
import time
from typing import Any

import pytest

from assay.errors import MissingExtra
from assay.scorers.checks.patterns import Pattern, compile_pattern
from assay.types import InvalidValue


def pattern(source: str) -> Pattern:
    return compile_pattern(source)


@pytest.mark.parametrize("source", ["(a+)+$", "(a|aa)+$", "(.*)*x$", "([a-z]+)*\\d$"])
@pytest.mark.parametrize("size", [50, 200_000])
def test_hostile_text_does_not_hang(source: str, size: int) -> None:
    started = time.process_time()

    assert pattern(source).search("a" * size + "!") is None

    # Python's own would need longer than the universe has lasted.
    assert time.process_time() - started < 5


def test_a_match_tells_where_it_is_in_characters() -> None:
    found = pattern("b(.)").search("äöü🙂 bé")

    assert found is not None
    assert (found.start, found.text, found.group) == (5, "bé", "é")


def test_half_a_character_in_the_text_does_not_break_it() -> None:
    assert pattern("b").search("\ud800 b") is not None


@pytest.mark.parametrize(
    "source", [5, "", "(", "[a-", "*", "(?=a)", r"(a)\1", "a{2000}", "x" * 2001]
)
def test_what_cannot_be_run_is_refused(source: Any) -> None:
    with pytest.raises(InvalidValue, match="pattern"):
        pattern(source)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "assay.scorers.checks.patterns.find_spec",
        lambda name: None if name == "re2" else found(name),
    )

    with pytest.raises(MissingExtra, match=r"google-re2.*\n.*assay-eval\[checks\]"):
        pattern("a")
