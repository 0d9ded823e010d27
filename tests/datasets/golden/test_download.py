"""Bytes on their way into the cache: bounded, digested, and whole or not there."""

import hashlib
import io
from pathlib import Path

import pytest

from assay.datasets.golden.download import Download, PartFile, find_cached
from assay.errors import DatasetError


def landed(data: bytes, name: str = "s3://b/golden.json") -> Download:
    download = Download(io.BytesIO(), shown=name, max_bytes=1000)
    download.write(data)
    return download


def test_the_digest_and_the_size_are_taken_on_the_way() -> None:
    download = landed(b"ab")
    download.write(b"c")

    assert download.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert download.size == 3


def test_a_file_over_the_bound_is_refused_while_it_comes() -> None:
    download = landed(b"x" * 1000)

    expected = "the file is too large; at most 1,000 bytes are fetched"
    with pytest.raises(DatasetError, match=expected):
        download.write(b"x")
    with pytest.raises(DatasetError, match="the file has 1,001 bytes; at most 1,000 bytes"):
        landed(b"").expect(1001)
    landed(b"").expect(None)


@pytest.mark.parametrize(
    ("name", "data", "suffix"),
    [
        ("s3://b/a.json", b'\xef\xbb\xbf\n [{"a": 1}]', ".json"),
        ("s3://b/a.json", b'{"a": 1}\n', ".jsonl"),
        ("s3://b/a.json", b"", ".jsonl"),
        ("s3://b/a.json", b"nonsense", ".json"),
        ("s3://b/a.JSONL", b"[", ".jsonl"),
        ("s3://b/a.csv", b"a,b", ".csv"),
        ("s3://b/a.json.gz", b"\x1f\x8b", ".json.gz"),
        ("s3://b/a.parquet", b"PAR1", ".parquet"),
        ("http://h/download", b"PAR1", ".parquet"),
        ("http://h/download", b'{"a": 1}', ".jsonl"),
        ("http://h/", b"[", ".json"),
    ],
)
def test_the_format_is_known_by_the_name_and_by_how_it_begins(
    name: str, data: bytes, suffix: str
) -> None:
    assert landed(data, name).suffix == suffix


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(DatasetError, match="neither the name nor the first bytes of the file show"):
        _ = landed(b"<html>", "http://h/login").suffix


def test_a_file_is_there_only_when_it_was_kept(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    with PartFile(folder) as part:
        part.file.write(b"half")
    assert list(folder.iterdir()) == []

    with PartFile(folder) as part:
        part.file.write(b"whole")
        path = part.keep("a.json")
    assert [each.name for each in folder.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"whole"


def test_nothing_is_left_of_a_fetch_that_failed(tmp_path: Path) -> None:
    def fail() -> None:
        with PartFile(tmp_path) as part:
            part.file.write(b"half")
            raise DatasetError("no")

    with pytest.raises(DatasetError):
        fail()

    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    expected = "the cache folder cannot be written to: Not a directory"
    with pytest.raises(DatasetError, match=expected):
        PartFile(tmp_path / "file" / "cache")


def test_a_kept_file_is_found_only_while_it_is_what_its_name_says(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"abc").hexdigest()
    assert find_cached(tmp_path / "none", digest) is None

    kept = tmp_path / f"{digest}.json"
    kept.write_bytes(b"abc")
    assert find_cached(tmp_path, digest) == kept

    kept.write_bytes(b"abd")
    assert find_cached(tmp_path, digest) is None
