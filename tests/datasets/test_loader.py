"""`load_samples`: which source is which, and what is refused before anything is read."""

import gzip
import os
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import zstandard

from assay.datasets import load_samples, named_rows
from assay.errors import ConfigError, DatasetError, MissingExtra
from assay.types import Sample

CONTENT = {
    "jsonl": '{"question": "1+1", "answer": "2"}\n',
    "ndjson": '{"question": "1+1", "answer": "2"}\n',
    "json": '[{"question": "1+1", "answer": "2"}]',
    "csv": "question,answer\n1+1,2\n",
}


@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)]
)
@pytest.mark.parametrize("form", [*CONTENT, "JSONL"])
def test_every_text_format_gives_the_same_sample(
    tmp_path: Path, form: str, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"data.{form}{suffix}"
    path.write_bytes(compress(CONTENT[form.lower()].encode()))

    for source in (path, str(path)):
        (sample,) = load_samples(source)

        assert (sample.prompt, sample.ground_truth) == ("1+1", "2")
        assert sample.input == {"question": "1+1", "answer": "2"}


def test_parquet_gives_the_same_sample(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"question": ["1+1"], "answer": ["2"]}), tmp_path / "data.parquet"
    )

    (sample,) = load_samples(tmp_path / "data.parquet")

    assert sample.input == {"question": "1+1", "answer": "2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_samples": -1}, "max_samples=-1 is not a number of samples"),
        ({"max_samples": True}, "max_samples=True is not a number of samples"),
        ({"max_samples": "3"}, "max_samples='3' is not a number of samples"),
        ({"on_bad_row": "ignore"}, "on_bad_row='ignore' is neither 'fail' nor 'skip'"),
        ({"adapter": "f"}, "adapter='f' is not callable"),
        ({"split": "train"}, "split='train' has no effect here"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"load_samples\(\): ") as caught:
        load_samples([], **options)

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("source", [{"prompt": "a"}, b"data.jsonl", 7, None, Sample(prompt="a")])
def test_what_is_no_dataset_is_refused_at_the_call(source: Any) -> None:
    with pytest.raises(ConfigError, match="is not a dataset"):
        load_samples(source)


@pytest.mark.parametrize(
    "source",
    [
        "data.jsonl",
        "org/data.jsonl",
        "data.csv.gz",
        "notes.txt",
        "./folder",
        "../up/there",
        "https://example.org/data",
        "x" * 5000 + "/y",
        Path("org/name"),
        '{"prompt": "a row, not a path"}',
        "nul\0byte",
    ],
)
def test_a_path_that_is_not_there_is_no_hub_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DatasetError, match="the file or folder does not exist"):
        load_samples(source)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="the path is empty"):
        load_samples("")


@pytest.mark.parametrize(
    "name", ["data.txt", "data", "data.gz", "data.zst", "data.parquet.gz", "data.pkl"]
)
def test_a_file_of_unknown_format_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()

    expected = r"does not have the suffix of a supported format\n.*\.jsonl, \.ndjson, "
    with pytest.raises(DatasetError, match=expected):
        load_samples(tmp_path / name)


def test_a_pipe_is_refused_because_it_cannot_be_read_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.jsonl")

    with pytest.raises(DatasetError, match="is not a regular file"):
        load_samples(tmp_path / "data.jsonl")


@pytest.mark.parametrize("spec", [None, ModuleSpec("a mere folder of that name", None)])
@pytest.mark.parametrize(
    ("source", "extra"),
    [("data.parquet", "parquet"), (".", "hf"), ("org/name", "hf"), ("data.csv.zst", "zstd")],
)
def test_a_missing_library_is_named_at_the_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    extra: str,
    spec: ModuleSpec | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data.parquet", "data.csv.zst"):
        (tmp_path / name).touch()
    monkeypatch.setattr(named_rows, "find_spec", lambda name: spec)

    with pytest.raises(MissingExtra, match=rf"pip install 'assay-eval\[{extra}\]'"):
        load_samples(source)


def test_nothing_is_read_at_the_call(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xff not JSON")

    stream = load_samples(path)

    path.write_text('{"prompt": "a"}\n')
    assert [sample.prompt for sample in stream] == ["a"]
