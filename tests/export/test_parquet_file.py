"""Parquet with columns that are known beforehand."""

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MissingExtra, WireError
from assay.export.parquet_file import ParquetFile, build_parquet_schema

COLUMNS = {
    "name": str,
    "turns": [{"role": str, "count": int}],
    "info": {"share": float, "on": bool},
}


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    rows: list[dict[str, Any]] = [
        {"name": None, "turns": [], "info": {"share": 0.5, "on": True}},
        *(
            {"name": str(n), "turns": [{"role": "a", "count": n}], "info": None}
            for n in range(1200)
        ),
    ]
    file = ParquetFile(tmp_path / "a.parquet", COLUMNS)

    for row in rows:
        file.write(row)
    file.close()

    assert read_table(tmp_path / "a.parquet").to_pylist() == rows


def test_a_row_of_another_type_is_refused_and_the_file_goes_on(tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    file = ParquetFile(tmp_path / "a.parquet", {"name": str})

    with pytest.raises(WireError, match="the row does not fit the columns"):
        file.write({"name": [1]})
    file.write({"name": "x"})
    file.close()

    assert read_table(tmp_path / "a.parquet").to_pylist() == [{"name": "x"}]


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtra, match=r"assay-eval\[parquet\]"):
        build_parquet_schema(COLUMNS)
