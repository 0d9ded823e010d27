"""A JSON array of any size: elements, places, and broken files."""

import json
from pathlib import Path
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
