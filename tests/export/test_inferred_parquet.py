"""Parquet whose columns are inferred from the rows."""

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MissingExtra, WireError
from assay.export.inferred_columns import MAX_FIELDS, PADDED, RETYPED
from assay.export.inferred_parquet import InferredColumns, InferredParquetFile

COLUMNS = InferredColumns(exact=("calls[].arguments",), hint="")


def write(path: Path, *rows: dict[str, Any]) -> InferredParquetFile:
    file = InferredParquetFile(path, COLUMNS)
    for row in rows:
        file.write(row)
    file.close()
    return file


def read(path: Path) -> list[dict[str, Any]]:
    from pyarrow.parquet import read_table

    rows: list[dict[str, Any]] = read_table(path).to_pylist()
    return rows


def call(**arguments: Any) -> dict[str, Any]:
    return {"calls": [{"arguments": arguments}]}


def test_rows_of_one_shape_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [call(place="é", days=[n], unit={"name": "C"}) for n in range(700)]

    file = write(tmp_path / "a.parquet", *rows)

    assert read(tmp_path / "a.parquet") == rows
    assert not file.changed


def test_objects_that_their_column_changes_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", call(a=1), call(a="x"), call(b=True), call(a="y", b=False))

    assert read(tmp_path / "a.parquet") == [
        call(a="1", b=None),
        call(a="x", b=None),
        call(a=None, b=True),
        call(a="y", b=False),
    ]
    assert file.changed == {
        f"calls[].arguments: {PADDED}": 3,
        f"calls[].arguments: {RETYPED}": 1,
    }


def test_an_object_without_keys_is_still_an_object(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", call())

    assert read(tmp_path / "a.parquet") == [call(_=None)]
    assert file.changed == {f"calls[].arguments: {PADDED}": 1}


def test_a_column_in_which_no_row_has_anything_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"a": 1, "tools": []}, {"a": 2, "tools": [], "none": None})

    assert read(tmp_path / "a.parquet") == [{"a": 1}, {"a": 2}]


def test_a_row_with_too_many_new_keys_is_refused_and_the_others_are_written(tmp_path: Path) -> None:
    file = InferredParquetFile(tmp_path / "a.parquet", COLUMNS)
    file.write(call(a=1))

    with pytest.raises(WireError, match=f"exceed the limit of {MAX_FIELDS} columns"):
        file.write(call(**{f"k{n}": n for n in range(MAX_FIELDS)}))
    file.write(call(a=2))
    file.close()

    assert read(tmp_path / "a.parquet") == [call(a=1), call(a=2)]


def test_nothing_is_worked_out_for_a_file_that_is_aborted(tmp_path: Path) -> None:
    file = InferredParquetFile(tmp_path / "a.parquet", COLUMNS)
    file.write(call(a=1))

    file.abort()

    assert (tmp_path / "a.parquet").read_bytes() == b""


def test_a_folder_that_cannot_be_written_is_found_before_the_first_row(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        InferredParquetFile(tmp_path / "none" / "a.parquet", COLUMNS)


def test_without_pyarrow_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtra, match=r"assay-eval\[parquet\]"):
        InferredParquetFile(tmp_path / "a.parquet", COLUMNS)
