"""JSON Lines: what a line may be, and how a bad one is described."""

import gzip
from pathlib import Path

import pytest

from assay.datasets import ReadLimits
from assay.datasets.jsonl_rows import JsonLines
from assay.datasets.rows import RowOutcome
from assay.errors import BadRow


def rows(tmp_path: Path, content: bytes, **limits: int) -> list[tuple[int, RowOutcome]]:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    return list(JsonLines(path, ReadLimits(**limits)))


def only_problem(found: list[tuple[int, RowOutcome]]) -> str:
    problems = [row for _, row in found if isinstance(row, BadRow)]
    assert len(problems) == 1
    return str(problems[0]).replace(str(problems[0].where), Path(str(problems[0].where)).name, 1)


def test_mark_crlf_empty_lines_and_a_missing_last_newline_are_accepted(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n\t{"a": 2} \n\n{"a": 3}'

    assert rows(tmp_path, content) == [(1, {"a": 1}), (4, {"a": 2}), (6, {"a": 3})]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path, b"") == []


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path) -> None:
    assert rows(tmp_path, '{"a": "x\u2028y\x85z"}\n'.encode()) == [(1, {"a": "x\u2028y\x85z"})]


@pytest.mark.parametrize(
    ("last", "column"),
    [(b'{"a": "he', 10), (b'{"a": tr', 9), (b'{"a": Na', 7), (b'{"a": "\xf0\x9f', 8), (b"{", 2)],
)
def test_a_cut_off_last_line_is_called_that_at_its_byte(
    tmp_path: Path, last: bytes, column: int
) -> None:
    found = rows(tmp_path, b'{"a": 1}\n' + last)

    assert found[0] == (1, {"a": 1})
    expected = f"a.jsonl:2:{column}: the last line is truncated\n  hint: "
    assert only_problem(found).startswith(expected)


def test_a_line_that_ends_early_before_others_is_not_called_the_last(tmp_path: Path) -> None:
    found = rows(tmp_path, b'{"a":\n{"a": 1}\n')

    assert only_problem(found) == "a.jsonl:1:6: the line ends in the middle of an object"
    assert found[1] == (2, {"a": 1})


def test_the_column_counts_the_space_before_the_object(tmp_path: Path) -> None:
    found = rows(tmp_path, b'   {"a": NaN}\n')

    expected = "a.jsonl:1:10: the line contains NaN, which is not JSON\n  hint: "
    assert only_problem(found).startswith(expected)


def test_a_line_over_the_limit_is_passed_over_and_the_next_is_read(tmp_path: Path) -> None:
    long = b'{"a": "' + b"x" * 100 + b'"}'

    found = rows(tmp_path, long + b'\n{"a": 1}\n', max_row_bytes=50)

    expected = "a.jsonl:1:51: the line is 110 bytes, over the limit of 50"
    assert only_problem(found).startswith(expected)
    assert found[1] == (2, {"a": 1})


def test_a_line_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    assert rows(tmp_path, b'{"a": 1}\n', max_row_bytes=8) == [(1, {"a": 1})]


def test_a_compressed_file_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))

    assert list(JsonLines(path, ReadLimits())) == [(1, {"a": 1}), (2, {"a": 2})]
