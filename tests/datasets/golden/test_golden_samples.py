"""A fetched dataset as samples: complaints name the address and the row, never the cache."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import fetch_golden, load_samples, read_golden
from assay.errors import BadRow, DatasetError
from assay.types import Sample

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "1+1?", "answer": "2"},
    {"id": "b", "question": "1+2?", "answer": "3"},
]


def read(folder: Path, data: str | bytes, name: str = "golden.json") -> tuple[Sample, ...]:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_golden(fetch_golden(name, root=folder, cache=folder / "cache"))


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    "data", [json.dumps(ROWS), json.dumps(ROWS, indent=1), lines(*ROWS), "\n" + lines(*ROWS)]
)
def test_a_json_file_holds_an_array_or_lines(data: str, tmp_path: Path) -> None:
    samples = read(tmp_path, data)

    assert [(each.id, each.ground_truth) for each in samples] == [("a", "2"), ("b", "3")]


def test_tables_are_read_too(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)

    assert len(read(tmp_path, (tmp_path / "t.csv").read_bytes(), "golden.csv")) == 2


def test_parquet_is_read_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "t.parquet")

    assert len(read(tmp_path, (tmp_path / "t.parquet").read_bytes(), "golden.parquet")) == 2


def test_samples_that_assay_wrote_bring_their_ids(tmp_path: Path) -> None:
    written = [sample.to_json() for sample in read(tmp_path, lines(*ROWS))]
    made = Sample(prompt="1+1?", ground_truth="2").to_json()

    assert len(read(tmp_path, "\n".join([*written, made]), "again.jsonl")) == 3


def test_rows_without_an_id_get_the_one_that_load_samples_gives(tmp_path: Path) -> None:
    rows = [ROWS[0], {"question": "?"}, {"question": "!"}, {"question": "?"}]

    samples = read(tmp_path, lines(*rows), "golden.jsonl")

    given = [each.id for each in load_samples(tmp_path / "golden.jsonl")]
    assert [each.id for each in samples] == given
    assert given[3] == f"{given[1]}-2"
    assert len(set(given)) == 4


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "golden.json: the dataset contains no samples"),
        ("[]", "golden.json: the dataset contains no samples"),
        ("\n\n", "golden.json: the dataset contains no samples"),
        (lines(*ROWS, ROWS[0]), "golden.json:3: the id 'a' is already used at golden.json:1"),
        (lines(ROWS[0]) + '{"id": "b", "question": NaN}\n', "golden.json:2:"),
        (lines(ROWS[0]) + '{"id": "b", "que', "golden.json:2:"),
        (json.dumps([*ROWS, 5]), "golden.json:1:98: the element is a number, not an object"),
        (lines({"id": "a", "colour": "red"}), "golden.json:1: no known layout"),
        ("nonsense", "golden.json:1:1: the file"),
    ],
)
def test_what_is_wrong_is_told_with_its_row(data: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, data)

    assert str(caught.value).startswith(said)
    assert "cache" not in str(caught.value)


def test_a_bad_row_stays_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(BadRow):
        read(tmp_path, '{"id": "b", "question": NaN}\n')
