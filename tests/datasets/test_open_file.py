"""Opening files: compression within bounds, byte order marks."""

import gzip
from pathlib import Path

import pytest
import zstandard

from assay.datasets import ReadLimits
from assay.datasets.open_file import open_bytes, skip_line
from assay.errors import DatasetError


def read(path: Path, limits: ReadLimits | None = None) -> bytes:
    with open_bytes(path, limits or ReadLimits()) as file:
        return file.read()


def test_a_byte_order_mark_is_passed_over_in_plain_and_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfhi")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfhi"))

    assert read(tmp_path / "a.csv") == read(tmp_path / "a.csv.gz") == b"hi"


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()

    assert read(tmp_path / "a.jsonl") == b""


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_called_by_its_name(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.jsonl").write_bytes("\ufeff{}".encode(encoding))

    with pytest.raises(DatasetError, match=r"a\.jsonl: the file is UTF-16, not UTF-8"):
        read(tmp_path / "a.jsonl")


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.jsonl: the file cannot be opened: No such file"):
        read(tmp_path / "a.jsonl")


def test_several_compressed_members_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))

    assert read(tmp_path / "a.jsonl.gz") == b"one\ntwo\n"


def test_a_cut_off_compressed_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(bytes(range(256)) * 99)[:-12])

    with pytest.raises(DatasetError, match="the compressed file is truncated after"):
        read(tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize("damage", ["not compressed", "checksum", "rubbish after"])
def test_a_damaged_compressed_file_says_so(tmp_path: Path, damage: str) -> None:
    data = gzip.compress(b"hello " * 100)
    broken = {
        "not compressed": b"hello",
        "checksum": data[:-8] + b"\0" * 8,
        "rubbish after": data + b"rubbish",
    }
    (tmp_path / "a.jsonl.gz").write_bytes(broken[damage])

    with pytest.raises(DatasetError, match="the file is not valid gzip"):
        read(tmp_path / "a.jsonl.gz")


def test_a_bomb_is_stopped_by_its_ratio_and_the_error_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\0" * 20_000_000))

    with pytest.raises(DatasetError, match=r"more than 200 times its size\n.*max_expansion="):
        read(tmp_path / "a.jsonl.gz")
    assert len(read(tmp_path / "a.jsonl.gz", ReadLimits(max_expansion=2000))) == 20_000_000


def test_a_compressed_file_is_stopped_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"ab" * 600))

    with pytest.raises(DatasetError, match=r"more than 1000 bytes\n.*max_expanded_bytes="):
        read(tmp_path / "a.jsonl.gz", ReadLimits(max_expanded_bytes=1000))


def test_zstd_frames_are_one_file(tmp_path: Path) -> None:
    frames = [b"\xef\xbb\xbfone\n", b"", bytes(range(256)) * 900]
    packed = b"".join(zstandard.compress(frame) for frame in frames)
    (tmp_path / "a.jsonl.zst").write_bytes(packed)
    (tmp_path / "empty.jsonl.zst").touch()

    assert read(tmp_path / "a.jsonl.zst") == b"one\n" + frames[2]
    assert read(tmp_path / "empty.jsonl.zst") == b""


def test_a_cut_off_zstd_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b"hello " * 100)[:-3])

    with pytest.raises(DatasetError, match="the compressed file is truncated after"):
        read(tmp_path / "a.jsonl.zst")


@pytest.mark.parametrize("data", [b"hello", zstandard.compress(b"hello") + b"rubbish"])
def test_an_invalid_zstd_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(data)

    expected = r"the file is not valid zstd[\s\S]*must not end in \.zst"
    with pytest.raises(DatasetError, match=expected):
        read(tmp_path / "a.jsonl.zst")


def test_a_zstd_bomb_is_stopped_after_a_few_megabytes(tmp_path: Path) -> None:
    # A terabyte of zeros, written as frames of 64 MiB that are a few kilobytes each.
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b"\0" * (64 << 20)) * 16_384)

    with pytest.raises(DatasetError, match=r"more than 200 times its size\n.*max_expansion="):
        read(tmp_path / "a.jsonl.zst")
    with pytest.raises(DatasetError, match=r"more than 1000 bytes\n.*max_expanded_bytes="):
        read(tmp_path / "a.jsonl.zst", ReadLimits(max_expanded_bytes=1000))


def test_without_the_zstandard_package_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b"hello"))
    monkeypatch.setattr("assay.datasets.open_file.find_spec", lambda name: None)

    with pytest.raises(DatasetError, match=r"needs the package `zstandard`\n.*assay-eval\[zstd\]"):
        read(tmp_path / "a.jsonl.zst")


def test_the_rest_of_a_line_is_counted_and_the_next_line_follows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 3_000_000 + b"\nnext")

    with open_bytes(tmp_path / "a.jsonl", ReadLimits()) as file:
        assert skip_line(file) == 3_000_001
        assert file.read() == b"next"
