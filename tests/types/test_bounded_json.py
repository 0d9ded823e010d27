"""Any value as plain JSON values: nearest spellings, bounded work, honest about changes."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from assay.types.bounded_json import PlainJson, count_utf16_units, shorten, to_plain, write_compact


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    name: str


@dataclass
class Point:
    x: int


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("value", [None, True, 0, -1.5, 'a\n"\\', [1, [2]], {"a": {"b": []}}])
def test_plain_values_stay_as_they_are(value: Any) -> None:
    assert to_plain(value, room=100) == PlainJson(value, changed=False)


def test_a_tuple_becomes_a_list_as_everywhere_in_json() -> None:
    assert to_plain((1, 2), room=100) == PlainJson([1, 2], changed=False)


@pytest.mark.parametrize(
    ("value", "spelling"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        ("half \ud83d", "half \ufffd"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ({3, 1, 2}, [1, 2, 3]),
        (Colour.RED, "red"),
        (Place(name="Oslo"), {"name": "Oslo"}),
        (Point(x=1), {"x": 1}),
        (Fraction(1, 2), 0.5),
        (Mute(), "<Mute>"),
        ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "null": "b", "[1,2]": "c"}),
        ({1: "a", "1": "b"}, {"1": "a", "1'": "b"}),
    ],
)
def test_a_value_json_has_no_word_for_takes_its_nearest_spelling_and_says_so(
    value: Any, spelling: Any
) -> None:
    assert to_plain(value, room=200) == PlainJson(spelling, changed=True)


def test_a_value_that_contains_itself_does_not_fit() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert to_plain(endless, room=10_000) is None


@pytest.mark.parametrize(
    "value",
    ["x" * 99, b"x" * 1000, [0] * 60, {str(n): n for n in range(40)}, set(range(200)), 10**1000],
)
def test_what_needs_more_room_is_refused(value: Any) -> None:
    assert to_plain(value, room=100) is None


def test_an_integer_that_python_refuses_to_spell_does_not_fit() -> None:
    assert to_plain(10**5000, room=1000) is None


def test_a_huge_value_is_not_walked_to_its_end() -> None:
    seen: list[int] = []

    class Watched(str):
        def __str__(self) -> str:
            seen.append(1)
            return "x"

    class Lazy(dict[str, Any]):
        def items(self) -> Any:
            for n in range(1_000_000):
                seen.append(n)
                yield str(n), Watched("x")

    assert to_plain(Lazy(), room=100) is None
    assert len(seen) < 100


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_what_fits_is_never_refused(value: Any) -> None:
    written = write_compact(value)

    assert to_plain(value, room=count_utf16_units(written)) == PlainJson(value, changed=False)


@given(st.text(st.characters()), st.integers(3, 80))
def test_a_shortened_text_is_the_longest_beginning_that_fits(text: str, room: int) -> None:
    short = shorten(text, room=room)

    written = write_compact(short)
    assert count_utf16_units(written) <= room
    assert json.loads(written) == short
    kept = len(short) - 1
    if kept < len(text):
        longer = text[: kept + 1].encode("utf-8", "replace").decode() + "…"
        assert count_utf16_units(write_compact(longer)) > room or "\ud800" <= text[kept] <= "\udfff"


@given(st.text(st.characters()))
def test_width_is_at_least_every_count_of_characters(text: str) -> None:
    assert count_utf16_units(text) >= len(text)
    assert count_utf16_units(text) == len(text) + sum(ord(character) > 0xFFFF for character in text)
