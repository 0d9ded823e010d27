"""Parquet: rows, and what is refused."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from assay.datasets import PromptTemplate, ReadLimits, load_samples
from assay.datasets.parquet_table import ParquetTable
from assay.datasets.rows import RowOutcome
from assay.errors import BadRow, DatasetError
from assay.types import Sample


def rows(tmp_path: Path, table: Any, **limits: int) -> list[tuple[int, RowOutcome]]:
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    return list(ParquetTable(path, ReadLimits(**limits)))


def shown(problem: RowOutcome) -> str:
    assert isinstance(problem, BadRow)
    return f"{Path(str(problem.where)).name}: {problem.message}"


def test_rows_of_several_batches_come_in_order_with_nested_values(tmp_path: Path) -> None:
    given = [
        {"messages": [{"role": "user", "content": str(number)}], "n": number, "none": None}
        for number in range(200)
    ]

    assert rows(tmp_path, pyarrow.Table.from_pylist(given)) == list(enumerate(given))


def test_nan_is_refused_and_null_is_not(tmp_path: Path) -> None:
    found = rows(tmp_path, pyarrow.table({"n": [1.5, None, float("nan")]}))

    assert found[:2] == [(0, {"n": 1.5}), (1, {"n": None})]
    assert shown(found[2][1]) == "a.parquet[2]: the row contains NaN or an infinity"


def test_dates_and_decimals_are_the_text_that_is_recorded_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    given = {"question": "What is due?", "answer": Decimal("1.50"), "day": date(2026, 1, 2)}
    parquet.write_table(pyarrow.Table.from_pylist([given]), path)

    (sample,) = load_samples(path)
    (adapted,) = load_samples(path, adapter=lambda row: {"prompt": row["day"].strftime("%A")})

    assert sample.ground_truth == "1.50"
    assert Sample.from_json(sample.to_json()) == sample
    prompt = PromptTemplate("{question} Today is {day}.")
    assert [message.text for message in prompt(sample)] == ["What is due? Today is 2026-01-02."]
    # An adapter gets the values of the file.
    assert adapted.prompt == "Friday"


def test_a_row_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    found = rows(tmp_path, pyarrow.table({"a": ["x", "y" * 500, "z"]}), max_row_bytes=100)

    assert found[0] == (0, {"a": "x"})
    assert "a.parquet[1]: the row is 5" in shown(found[1][1])
    assert "over the limit of 100" in shown(found[1][1])
    assert found[2] == (2, {"a": "z"})


def test_values_json_does_not_know_come_as_they_are(tmp_path: Path) -> None:
    found = rows(tmp_path, pyarrow.table({"day": [date(2024, 2, 29)]}))

    assert found == [(0, {"day": date(2024, 2, 29)})]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])

    with pytest.raises(DatasetError, match="two columns are named 'a'"):
        rows(tmp_path, table)


@pytest.mark.parametrize("damage", ["text", "cut off", "empty"])
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"a": list(range(1000))}), path)
    whole = path.read_bytes()
    path.write_bytes({"text": b"hello, world", "cut off": whole[:-10], "empty": b""}[damage])

    with pytest.raises(DatasetError, match=r"a\.parquet: the file is not valid Parquet: "):
        list(ParquetTable(path, ReadLimits()))


def test_damage_inside_the_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"a": [str(n) for n in range(5000)]}), path)
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)

    with pytest.raises(DatasetError, match="the file is not valid Parquet"):
        list(ParquetTable(path, ReadLimits()))


@pytest.mark.parametrize(
    "values",
    [
        pyarrow.array([2**62, 1], pyarrow.timestamp("us")),
        pyarrow.array([10**8, 1], pyarrow.int32()).cast(pyarrow.date32()),
    ],
)
def test_a_value_python_has_no_word_for_is_a_bad_row_and_the_others_are_read(
    tmp_path: Path, values: Any
) -> None:
    found = rows(tmp_path, pyarrow.table({"a": [1, 2], "at": values}))

    assert shown(found[0][1]) == (
        "a.parquet[0]: the row has a value that cannot be read: date value out of range"
    )
    assert isinstance(found[1][1], dict)


def test_text_that_is_not_utf_8_and_repeated_fields_are_bad_rows(tmp_path: Path) -> None:
    bits = [pyarrow.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pyarrow.py_buffer(b"\xff")]
    text = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, *bits])
    number = pyarrow.array([1])
    fields = pyarrow.StructArray.from_arrays([number, number], names=["k", "k"])

    for column in (text, fields):
        ((_, problem),) = rows(tmp_path, pyarrow.table({"a": column}))
        assert "a.parquet[0]: the row has a value that cannot be read: " in shown(problem)
