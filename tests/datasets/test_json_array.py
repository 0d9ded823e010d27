"""A JSON array of any size: elements, places, and broken files."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.datasets import ReadLimits, json_array
from assay.datasets.json_array import JsonArray
from assay.datasets.rows import RowOutcome
from assay.errors import BadRow, DatasetError

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"', "\\", '\\"', "]},[{", '"]', "\n", "é😀"]
)
_ELEMENTS = st.lists(
    st.dictionaries(_TEXT, _TEXT | st.lists(_TEXT, max_size=3) | st.integers(), max_size=4),
    max_size=6,
)


def rows(tmp_path: Path, content: bytes, **limits: int) -> list[tuple[int, RowOutcome]]:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    return list(JsonArray(path, ReadLimits(**limits)))


@contextmanager
def at_most_calls(most: int) -> Iterator[None]:
    """Raise once more functions were called: an endless loop ends as a failure, without a clock."""
    count = 0

    def count_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"
        if count > most:
            raise RuntimeError(f"more than {most} calls")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        yield
    finally:
        sys.setprofile(before)


def rows_and_end(tmp_path: Path, content: bytes, **limits: int) -> tuple[list[RowOutcome], str]:
    """The rows as far as they can be read, and the error that ended them."""
    path, found = tmp_path / "a.json", []
    path.write_bytes(content)
    try:
        # A few calls for each byte: a chunk of one byte is read and scanned on its own.
        with at_most_calls(500 + 30 * len(content)):
            for _, row in JsonArray(path, ReadLimits(**limits)):
                found.append(row)
    except DatasetError as error:
        return found, f"{Path(str(error.where)).name}: {error.message}"
    return found, ""


def shown(problem: RowOutcome) -> str:
    assert isinstance(problem, BadRow)
    return f"{Path(str(problem.where)).name}: {problem.message}"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ELEMENTS, st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))
def test_reads_every_element_however_the_chunks_fall(
    tmp_path: Path, elements: list[dict[str, Any]], indent: int | None, ascii_only: bool, chunk: int
) -> None:
    content = json.dumps(elements, indent=indent, ensure_ascii=ascii_only).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        found = rows(tmp_path, b" \n" + content + b"\n")

    assert found == list(enumerate(elements))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ELEMENTS.filter(bool), st.data(), st.integers(1, 40))
def test_any_prefix_gives_the_whole_elements_and_says_that_it_is_cut_off(
    tmp_path: Path, elements: list[dict[str, Any]], data: st.DataObject, chunk: int
) -> None:
    content = json.dumps(elements).encode()
    cut = data.draw(st.integers(1, len(content) - 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        *whole, (_, last) = rows(tmp_path, content[:cut])

    assert [row for _, row in whole] == elements[: len(whole)]
    truncated = "the file is truncated: it ends before the array does"
    assert shown(last) == f"a.json:1:{cut + 1}: {truncated}"


@pytest.mark.parametrize("chunk", [1, 7, 100_000])
def test_a_bad_element_is_placed_and_the_next_is_read(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "_CHUNK", chunk)

    found = rows(tmp_path, b'[{"a": 1},\n  {"a": NaN}, {\n"a": 1,\n "a": 2}, "x", 7, [], {"b": 1}]')

    assert found[0] == (0, {"a": 1})
    assert [shown(problem) for _, problem in found[1:6]] == [
        "a.json:2:9: the element contains NaN, which is not JSON",
        "a.json:4:2: the element repeats the key 'a' in one object",
        "a.json:4:11: the element is a string, not an object",
        "a.json:4:16: the element is a number, not an object",
        "a.json:4:19: the element is an array, not an object",
    ]
    assert found[6] == (6, {"b": 1})


@pytest.mark.parametrize("chunk", [1, 16, 100_000])
@pytest.mark.parametrize("long", ['{"a": "%s"}', '"%s"', "1%s", '{"a": [%s]}'])
def test_an_element_over_the_limit_is_passed_over_without_holding_it(
    tmp_path: Path, chunk: int, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "_CHUNK", chunk)
    element = long % ("1" * 500)

    found = rows(tmp_path, f'[{element}, {{"b": 1}}]'.encode(), max_row_bytes=50)

    expected = f"a.json:1:2: the element is {len(element)} bytes, over the limit of 50"
    assert shown(found[0][1]) == expected
    assert found[1] == (1, {"b": 1})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.json:1:1: the file is empty, so it is not a JSON array"),
        (b'\n {"a": 1}', "a.json:2:2: the file does not begin with `[`, so it is not a JSON array"),
        (b'[{"a": 1} {"a": 2}]', "a.json:1:11: expected `,` or `]` after an element"),
        (b'[{"a": 1},]', "a.json:1:11: expected an element after `,`"),
        (b'[{"a": 1},,{}]', "a.json:1:11: expected an element after `,`"),
        (b"[,]", "a.json:1:2: expected an element after `[`"),
        (b'[{"a": 1}]\n[]', "a.json:2:1: the file continues after the end of the array"),
    ],
)
def test_a_file_that_is_no_array_is_refused_with_line_and_column(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        rows(tmp_path, content)

    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines()[0] == message
    assert "use .jsonl for one object per line" in str(caught.value.hint)


@pytest.mark.parametrize("content", [b"[]", b" [ \n ] \n", b"\xef\xbb\xbf[]"])
def test_an_empty_array_has_no_rows(tmp_path: Path, content: bytes) -> None:
    assert rows(tmp_path, content) == []


_NO_SEPARATOR = "expected `,` or `]` after an element"


@pytest.mark.parametrize("chunk", [1, 3, 100_000])
@pytest.mark.parametrize(
    ("content", "rows_and_problems", "end"),
    [
        (b"\x00[]", "", "a.json:1:1: the file does not begin with `[`, so it is not a JSON array"),
        (b'[\x00{"a": 1}]', "problem", f"a.json:1:3: {_NO_SEPARATOR}"),
        (b'[{"a": 1}\x0b, {"b": 1}]', "row", f"a.json:1:10: {_NO_SEPARATOR}"),
        (b'[{"a": 1}, \x1f, {"b": 1}]', "row problem row", ""),
        (b'[{"a": 1}, \x0c]', "row problem", ""),
        (b'[{"a": 1}]\x00', "row", "a.json:1:11: the file continues after the end of the array"),
        (b'[{"a": 1}, }]', "row", "a.json:1:12: expected an element after `,`"),
    ],
)
def test_a_control_character_ends_in_an_error_and_not_in_a_loop(
    tmp_path: Path,
    content: bytes,
    rows_and_problems: str,
    end: str,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_array, "_CHUNK", chunk)

    found, message = rows_and_end(tmp_path, content)

    kinds = ["problem" if isinstance(row, BadRow) else "row" for row in found]
    assert " ".join(kinds) == rows_and_problems
    assert message == end


_DAMAGE = b'\x00\n\x0b "[]{},\\-\x80\xff'


@pytest.mark.parametrize(
    "content",
    [
        b'[{"a": 1}, {"b": "x\\"]"}, {"c": [1, {"d": 2}]},\n{"e": "\\ud83d\\ude00"}]',
        '\ufeff[ {"é": "😀"} ,\r\n{"a": -1e9, "b": [[], {}]}]\n'.encode(),
    ],
    ids=["one line", "spaced"],
)
def test_any_damaged_byte_keeps_the_rows_before_it_and_ends(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = json.loads(content)
    ends = [found.end() for found in re.finditer(rb"\}[ \r\n]*(?=[,\]]\s*(?:\{|$))", content)]
    assert len(ends) == len(elements)

    for at in range(len(content)):
        kept = elements[: sum(end < at for end in ends)]
        for damaged in {
            content[:at],
            content[:at] + content[at + 1 :],
            *(content[:at] + bytes([byte]) + content[at + 1 :] for byte in _DAMAGE),
        }:
            outcomes = []
            for chunk in (1, 1000):
                monkeypatch.setattr(json_array, "_CHUNK", chunk)
                outcomes.append(rows_and_end(tmp_path, damaged))

            (found, end), other = outcomes
            assert (str(found), end) == (str(other[0]), other[1]), damaged
            assert found[: len(kept)] == kept, damaged
            assert not end or re.match(r"a\.json:\d+:\d+: ", end)


@pytest.mark.parametrize(
    "element",
    [
        b'{"a": "%s"}' % (b"x" * 4000),
        b'{"a": [%s]}' % b",".join([b"[]"] * 1000),
        b'{"a": "%s' % (b"\\\\" * 2000),
        b"\x01" * 4000,
        b"[" * 4000,
        b" " * 4000,
        b'"' * 4000,
        b"[{}] " * 800,
    ],
    ids=["text", "lists", "escapes", "word", "open", "space", "quotes", "no comma"],
)
@pytest.mark.parametrize("longest", [100, 100_000])
def test_each_byte_is_scanned_a_bounded_number_of_times(
    tmp_path: Path, element: bytes, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = 0
    match = json_array._match

    def count_bytes(pattern: re.Pattern[bytes], data: bytearray, at: int = 0) -> re.Match[bytes]:
        nonlocal scanned
        found = match(pattern, data, at)
        scanned += found.end() - at
        return found

    monkeypatch.setattr(json_array, "_match", count_bytes)
    monkeypatch.setattr(json_array, "_CHUNK", 10)
    content = b"[%s, %s]" % (element, element)

    rows_and_end(tmp_path, content, max_row_bytes=longest)

    assert scanned <= 2 * len(content)
