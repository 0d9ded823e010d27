"""Files with one object on each line: what is read, and what is told of the rest."""

from pathlib import Path

import pytest
import zstandard

from assay.errors import BadRow, DatasetError
from assay.sessions.session_lines import (
    find_session_files,
    iterate_numbered_lines,
    iterate_records,
    read_session_lines,
)


def test_bad_lines_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a": 1}\n\n[1]\n\xff\xfe\n{"b": 2}\r\n{"c": NaN}\n{"cut')

    found = read_session_lines(path)

    assert found.records == [{"a": 1}, {"b": 2}]
    assert [problem.where for problem in found.bad] == [f"{path}:{n}" for n in (3, 4, 6, 7)]
    assert found.bad[0].message == "the JSON value is a list, not an object"
    assert found.bad[-1].message == "the last line is truncated"


def test_half_a_character_in_a_cut_output_is_no_reason_to_lose_the_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"text": "cut \\ud83d"}\n')

    assert read_session_lines(path).records == [{"text": "cut \ufffd"}]


def test_an_endless_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"long": "xxxxxxxxxxxxxxxxxxxx"}\n{"a": 1}\n')

    first, second = iterate_numbered_lines(path, longest=10)

    assert isinstance(first[1], BadRow)
    assert first[1].where == f"{path}:1"
    assert second == (2, b'{"a": 1}\n')


def test_a_file_that_cannot_be_opened_is_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match="cannot be opened"):
        read_session_lines(tmp_path / "none.jsonl")


def test_files_are_found_in_a_settled_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.jsonl").touch()

    found = find_session_files(tmp_path, "*.jsonl", kind="sessions")

    assert [file.parent.name for file in found] == ["a", "b"]
    assert find_session_files(found[0], "*.jsonl", kind="sessions") == [found[0]]


def test_a_place_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"the folder contains no sessions[\s\S]*file names must match \*\.jsonl"
    ):
        find_session_files(tmp_path, "*.jsonl", kind="sessions")
    with pytest.raises(DatasetError, match="the file or folder does not exist"):
        find_session_files(tmp_path / "none", "*.jsonl", kind="sessions")


def test_lines_before_the_cut_of_a_compressed_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    whole = zstandard.compress(b'{"a": 1}\n')
    path.write_bytes(whole + zstandard.compress(b'{"b": 2}\n')[:-3])

    found = read_session_lines(path)

    assert found.records == [{"a": 1}]
    (problem,) = found.bad
    assert problem.where == f"{path}:2"
    assert problem.message.startswith("the compressed file is truncated after")


def test_each_record_comes_with_the_offset_of_the_byte_after_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a": 1}\n\n[]\n{"b": 2}')

    assert [end for _, end in iterate_records(path)] == [9, 13, 21]
