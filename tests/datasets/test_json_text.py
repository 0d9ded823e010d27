"""`parse_json_object`: what it reads, and at which byte it refuses what."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.datasets.json_text import JsonProblem, find_duplicate, parse_json_object

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(['":', '\\":', "a : b", '" :', "{[", "1e999", "NaN"])
)
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.just('":')
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=5)


def refused(data: bytes, *, max_depth: int = 100) -> JsonProblem:
    with pytest.raises(JsonProblem) as caught:
        parse_json_object(data, max_depth=max_depth)
    return caught.value


@settings(deadline=None)
@given(_OBJECTS, st.sampled_from([None, 1]), st.booleans())
def test_reads_what_the_standard_library_wrote(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()

    assert parse_json_object(data, max_depth=100) == value


@settings(deadline=None)
@given(_OBJECTS, _KEYS, _SCALARS, st.sampled_from([":", " :", "\n:", " \t\r\n :"]))
def test_a_repeated_key_is_never_overlooked(
    value: dict[str, Any], key: str, scalar: object, colon: str
) -> None:
    pairs = [*value.items(), (key, scalar), (key, None)]
    inside = ",".join(json.dumps(name) + colon + json.dumps(item) for name, item in pairs)

    problem = refused(('{"outer":[{' + inside + "}]}").encode())

    assert "repeats the key " in problem.message


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b'{"a": NaN}', "contains NaN, which is not JSON", 6),
        (b'{"a": [-Infinity]}', "contains -Infinity, which is not JSON", 7),
        (b'{"a": Infinity}', "contains Infinity, which is not JSON", 6),
        (b'{"a": "1e999", "b": -1e999}', "contains a number too large for a float", 20),
        (b'{"a": 1, "b": {"c": 1, "c" : 2}}', "repeats the key 'c' in one object", 23),
        (b'{"a": 1, "\\u0061": 2}', "repeats the key 'a' in one object", 9),
        (b'{"a": "\xe9"}', "is not UTF-8: byte 0xe9", 7),
        (b'{"a": "\xed\xa0\x80"}', "is not UTF-8: byte 0xed", 7),
        (b'{"a": [[[]]]}', "is nested deeper than 3", 8),
        (b'{"a": ' + b"[" * 5000, "is nested deeper than 3", 8),
        (b"[1]", "is an array, not an object", 0),
        (b'"a"', "is a string, not an object", 0),
        (b"true", "is a boolean, not an object", 0),
        (b"null", "is null, not an object", 0),
        (b"7", "is a number, not an object", 0),
        (b'{"a": 1} {"a": 2}', "is not JSON: trailing characters", 9),
    ],
)
def test_names_what_is_wrong_and_at_which_byte(data: bytes, message: str, offset: int) -> None:
    problem = refused(data, max_depth=3)

    assert problem.message == message
    assert problem.offset == offset
    assert not problem.cut_off


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse_json_object(b'{"a": [[]]}', max_depth=3) == {"a": [[]]}


@pytest.mark.parametrize("data", [rb'{"a": "\ud83d"}', rb'{"a": "\ude00 x"}', rb'{"\ud83dx": 1}'])
def test_half_of_a_surrogate_pair_is_refused(data: bytes) -> None:
    assert "contains a lone surrogate" in refused(data).message


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse_json_object(rb'{"a": "\ud83d\ude00"}', max_depth=100) == {"a": "😀"}


def test_a_broken_escape_is_not_taken_for_half_a_pair() -> None:
    assert refused(rb'{"a": "\ud8"}').message.startswith("is not JSON: ")


@settings(deadline=None)
@given(_OBJECTS.filter(bool), st.data())
def test_any_prefix_is_an_early_end(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    cut = data.draw(st.integers(min_value=1, max_value=len(text) - 1))

    problem = refused(text[:cut])

    assert problem.cut_off
    assert problem.offset <= cut


def test_the_column_counts_from_the_start_of_a_value_over_several_lines() -> None:
    assert refused(b'{\n "a": 1,\n "b": NaN\n}').offset == 17


def test_a_number_with_thousands_of_digits_is_refused_not_a_crash() -> None:
    assert refused(b'{"a": ' + b"1" * 5000 + b"}").message == "is not JSON: number out of range"


def test_an_object_of_very_many_keys_is_searched_once_for_a_repeated_one() -> None:
    names = [*(f"k{number}" for number in range(100_000)), "k7"]
    text = "{" + ", ".join(f'"{name}" : 1' for name in names) + "}"

    assert refused(text.encode()).message == "repeats the key 'k7' in one object"


@pytest.mark.parametrize(
    ("names", "found"),
    [([], None), (["a", "b"], None), (["a", "b", "b", "a"], "b"), (["a", "A", "a"], "a")],
)
def test_the_first_name_that_was_there_before_is_found(names: list[str], found: str | None) -> None:
    assert find_duplicate(names) == found


def test_each_name_is_looked_at_once_and_none_behind_the_duplicate() -> None:
    looked_at: list[str] = []

    def names() -> Iterator[str]:
        for name in ["a", "b", "a", "c"]:
            looked_at.append(name)
            yield name

    assert find_duplicate(names()) == "a"
    assert looked_at == ["a", "b", "a"]


def test_very_many_names_are_no_trouble() -> None:
    assert find_duplicate(str(number) for number in range(300_000)) is None
