"""CSV: cells, lines, and what is refused."""

import csv
from pathlib import Path

import pytest

from assay.datasets import ReadLimits
from assay.datasets.csv_table import CsvTable
from assay.datasets.rows import RowOutcome
from assay.errors import BadRow, DatasetError


def rows(tmp_path: Path, content: bytes, **limits: int) -> list[tuple[int, RowOutcome]]:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    return list(CsvTable(path, ReadLimits(**limits)))


def shown(problem: RowOutcome) -> str:
    assert isinstance(problem, BadRow)
    return f"{Path(str(problem.where)).name}: {problem.message}"


def test_cells_stay_text_and_rows_know_the_line_they_begin_on(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfquestion,answer\r\n1+1,2\r\n\r\n"two\nlines, ""quoted""",3\r\nx,\r\n'

    assert rows(tmp_path, content) == [
        (2, {"question": "1+1", "answer": "2"}),
        (4, {"question": 'two\nlines, "quoted"', "answer": "3"}),
        (6, {"question": "x", "answer": ""}),
    ]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("declared", [True, False])
def test_the_separators_of_spreadsheets_are_read(mark: str, declared: bool, tmp_path: Path) -> None:
    first = f"sep={mark}\r\n" if declared else ""
    content = f'\ufeff{first}question{mark}"an,sw;er"\r\n"a{mark}\nb"{mark}2\r\n'.encode()

    line = 3 if declared else 2
    assert rows(tmp_path, content) == [(line, {"question": f"a{mark}\nb", "an,sw;er": "2"})]


def test_the_separator_of_a_header_over_several_lines_is_found(tmp_path: Path) -> None:
    found = rows(tmp_path, b'"id, as in\nthe sheet";question;answer\r\n1;a, b;c\r\n')

    assert found == [(3, {"id, as in\nthe sheet": "1", "question": "a, b", "answer": "c"})]


def test_unused_rows_and_columns_of_a_sheet_are_ignored(tmp_path: Path) -> None:
    found = rows(
        tmp_path, b"question, answer ,,\r\n1+1,2,,\r\n,,,\r\n2+2,,,\r\n3+3,6,,x\r\n,,,\r\n"
    )

    assert found[:2] == [
        (2, {"question": "1+1", "answer": "2"}),
        (4, {"question": "2+2", "answer": ""}),
    ]
    assert [shown(problem) for _, problem in found[2:]] == [
        "a.csv:5: the row has 4 cells, but the header has 2"
    ]


def test_known_names_are_read_in_any_case_and_others_kept(tmp_path: Path) -> None:
    assert rows(tmp_path, b"ID,Question,ANSWER,Level\n1,a,b,c\n") == [
        (2, {"id": "1", "question": "a", "answer": "b", "Level": "c"})
    ]
    assert rows(tmp_path, b"question,Question\na,b\n") == [(2, {"question": "a", "Question": "b"})]


@pytest.mark.parametrize(
    ("content", "message", "cure"),
    [
        ("question,answer\n1+1,2\n".encode("utf-16"), "the file is UTF-16", "CSV UTF-8"),
        ("question,réponse\n".encode("cp1252"), "not UTF-8: byte 0xe9", "WINDOWS-1252"),
        (b"question,answer\r1+1,2\r", "ends a line without a line feed", "Macintosh"),
    ],
)
def test_other_encodings_of_spreadsheets_are_refused_with_their_cure(
    tmp_path: Path, content: bytes, message: str, cure: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        rows(tmp_path, content)

    assert cure in str(caught.value.hint)


def test_a_wrong_number_of_cells_is_a_bad_row_at_its_first_line(tmp_path: Path) -> None:
    found = rows(tmp_path, b'a,b\n"x\ny",1\n"x\ny",1,2\nz\nq,1\n')

    assert [shown(problem) for _, problem in found[1:3]] == [
        "a.csv:4: the row has 3 cells, but the header has 2",
        "a.csv:6: the row has 1 cells, but the header has 2",
    ]
    assert found[3] == (7, {"a": "q", "b": "1"})


def test_a_messages_cell_is_read_as_json(tmp_path: Path) -> None:
    found = rows(tmp_path, b'id,messages\n1,"[{""role"": ""user"", ""content"": ""hi""}]"\n2,\n')

    assert found == [
        (2, {"id": "1", "messages": [{"role": "user", "content": "hi"}]}),
        (3, {"id": "2", "messages": ""}),
    ]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("hello", "is not JSON: expected value, at byte 1 of the cell"),
        ('"[1, NaN]"', "contains NaN, which is not JSON, at byte 5 of the cell"),
        ('"[], ""x"": 1"', "contains more than one value"),
    ],
)
def test_a_messages_cell_that_is_not_json_is_a_bad_row(
    tmp_path: Path, cell: str, message: str
) -> None:
    ((_, problem),) = rows(tmp_path, f"id,messages\n1,{cell}\n".encode())

    assert shown(problem) == f"a.csv:2: the `messages` cell {message}"


def test_bytes_that_are_not_utf_8_are_placed_and_the_next_row_is_read(tmp_path: Path) -> None:
    found = rows(tmp_path, b'a,b\n"x\ny\xe9",1\nz,2\n')

    assert shown(found[0][1]) == "a.csv:3:2: the line is not UTF-8: byte 0xe9"
    assert found[1] == (4, {"a": "z", "b": "2"})


def test_a_quote_that_is_never_closed_is_refused_not_swallowed(tmp_path: Path) -> None:
    found = rows(tmp_path, b'a,b\nx,1\n"y,2\nz,3\n')

    assert found[0] == (2, {"a": "x", "b": "1"})
    assert shown(found[1][1]) == "a.csv:3: the row is not CSV: unexpected end of data"


def test_text_after_a_closing_quote_is_refused(tmp_path: Path) -> None:
    found = rows(tmp_path, b'a,b\n"x"y,1\nz,2\n')

    assert shown(found[0][1]).startswith("a.csv:2: the row is not CSV: ")
    assert found[1] == (3, {"a": "z", "b": "2"})


@pytest.mark.parametrize("row", [b"x" * 200 + b",1", b'"' + b"x\n" * 100 + b'",1'])
def test_a_row_over_the_limit_is_refused_whether_one_line_or_many(
    tmp_path: Path, row: bytes
) -> None:
    found = rows(tmp_path, b"a,b\n" + row + b"\nz,2\n", max_row_bytes=50)

    assert shown(found[0][1]) == "a.csv:2: the row is over the limit of 50 bytes"
    assert all(isinstance(problem, BadRow) for _, problem in found[:-1])


def test_cells_beyond_the_csv_modules_own_limit_are_read(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    cell = "x" * (usual + 1)

    assert rows(tmp_path, f"a\n{cell}\n".encode()) == [(2, {"a": cell})]
    assert csv.field_size_limit() == usual


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv:1: the file has no header line"),
        (b"\nx\n", "a.csv:1: the file has no header line"),
        (b"a,,b\n", "a.csv:1: column 2 has no name"),
        (b"a,b,a\n", "a.csv:1: two columns are named 'a'"),
        (b"a,\xe9\n", "a.csv:1:3: the line is not UTF-8: byte 0xe9"),
    ],
)
def test_a_table_without_a_proper_header_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        rows(tmp_path, content)

    assert not isinstance(caught.value, BadRow)
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines()[0] == message


def test_a_header_of_very_many_columns_is_searched_once_for_a_repeated_one(tmp_path: Path) -> None:
    names = [*(f"c{number}" for number in range(200_000)), "c7"]

    with pytest.raises(DatasetError, match="two columns are named 'c7'"):
        rows(tmp_path, ",".join(names).encode() + b"\n")
