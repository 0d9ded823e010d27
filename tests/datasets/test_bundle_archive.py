"""The archive of a bundle: the same bytes each time, and nothing hostile is read."""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.datasets import bundle_archive
from assay.datasets.bundle_archive import read_archive, write_archive
from assay.errors import ConfigError, DatasetError


def read(path: Path) -> dict[str, bytes]:
    return {member.name: b"".join(pieces) for member, pieces in read_archive(path)}


def archive_of(path: Path, *infos: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form) as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(b"x" * info.size) if info.isreg() else None)
    return path


def info(name: str, kind: bytes = tarfile.REGTYPE, size: int = 3) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, "/etc/passwd"
    made.size = size if kind == tarfile.REGTYPE else 0
    return made


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[str, Path]]:
    for name, text in {"a": "one", "b": "", "c": "x" * 1000}.items():
        (tmp_path / name).write_text(text)
    names = {"manifest.json": "a", "code/pkg/ä.py": "b", "results.jsonl": "c"}
    return [(name, tmp_path / file) for name, file in names.items()]


def test_what_was_written_is_read_back(tmp_path: Path, files: list[tuple[str, Path]]) -> None:
    with (tmp_path / "x.tar.gz").open("wb") as output:
        write_archive(output, files)
    wanted = {"manifest.json": b"one", "code/pkg/ä.py": b"", "results.jsonl": b"x" * 1000}
    assert read(tmp_path / "x.tar.gz") == wanted
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert archive.getnames() == list(wanted)


def test_the_same_members_give_the_same_bytes(files: list[tuple[str, Path]]) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_archive(first, files)
    for _, path in files:
        path.touch()
    write_archive(second, files)
    assert first.getvalue() == second.getvalue()


def test_content_that_nobody_reads_is_skipped(
    tmp_path: Path, files: list[tuple[str, Path]]
) -> None:
    with (tmp_path / "x.tar.gz").open("wb") as output:
        write_archive(output, files)
    assert [member.name for member, _ in read_archive(tmp_path / "x.tar.gz")] == [
        name for name, _ in files
    ]


HOSTILE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "absolute": ([info("/etc/cron.d/x")], "absolute path"),
    "drive": ([info("C:/x")], "absolute path"),
    "parent": ([info("code/../../x")], "leads out"),
    "dot": ([info("./manifest.json")], "leads out"),
    "empty part": ([info("code//x")], "leads out"),
    "backslash": ([info("code\\..\\x")], "not allowed"),
    "control": ([info("code/a\x1bb")], "not allowed"),
    "symlink": ([info("code/x", tarfile.SYMTYPE)], "not a plain file"),
    "hard link": ([info("code/x", tarfile.LNKTYPE)], "not a plain file"),
    "device": ([info("code/x", tarfile.CHRTYPE)], "not a plain file"),
    "block device": ([info("code/x", tarfile.BLKTYPE)], "not a plain file"),
    "pipe": ([info("code/x", tarfile.FIFOTYPE)], "not a plain file"),
    "folder": ([info("code/x", tarfile.DIRTYPE)], "not a plain file"),
    "twice": ([info("code/x"), info("code/x")], "twice"),
    "twice but for case": ([info("code/x"), info("code/X")], "twice"),
    "twice but for accents": ([info("code/\u00e9"), info("code/e\u0301")], "twice"),
    "file, then folder": ([info("code/x"), info("code/x/y")], "twice"),
    "folder, then file": ([info("code/x/y"), info("code/x")], "twice"),
    "large code": ([info("code/x", size=bundle_archive.MAX_FILE_BYTES + 1)], "over"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_member_is_refused(case: str, tmp_path: Path) -> None:
    infos, problem = HOSTILE[case]
    path = archive_of(tmp_path / "x.tar.gz", *infos)
    with pytest.raises(DatasetError, match=problem) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_headers_of_other_tar_formats_are_refused(form: int, tmp_path: Path) -> None:
    long = info(f"code/{'a' * 200}/x")
    with pytest.raises(DatasetError, match="not a plain file"):
        read(archive_of(tmp_path / "x.tar.gz", long, form=form))


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_archive, "MAX_MEMBERS", 3)
    path = archive_of(tmp_path / "x.tar.gz", *(info(f"code/{n}") for n in range(4)))
    with pytest.raises(DatasetError, match="more than 3 members"):
        read(path)


def test_a_compression_bomb_is_refused(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "x.tar.gz", info("results.jsonl", size=40 * 1024 * 1024))
    with pytest.raises(DatasetError, match="200 times its size"):
        read(path)


def gzipped(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no tar": (lambda data: b"not a tar file" * 100, "not a tar.gz file written by assay"),
    "empty": (lambda data: b"", "cut off"),
    "cut in a header": (lambda data: data[:300], "cut off"),
    "cut in a member": (lambda data: data[:600], "cut off"),
    "without its end": (lambda data: data[:1024], "cut off"),
    "more behind its end": (lambda data: data[:2048] + b"more" * 200, "does not end"),
    "wrong checksum": (lambda data: b"z" + data[1:], "not a tar.gz file written by assay"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_archive_is_refused(case: str, tmp_path: Path) -> None:
    change, problem = BROKEN[case]
    path = archive_of(tmp_path / "x.tar.gz", info("code/x", size=600))
    gzipped(path, change)
    with pytest.raises(DatasetError, match=problem):
        read(path)


def test_a_file_that_is_not_compressed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"plain text")
    with pytest.raises(DatasetError, match="the file is not valid gzip"):
        read(tmp_path / "x.tar.gz")


@pytest.mark.parametrize("name", ["../x", "/x", "code/" + "a" * 300, "a\nb", "code/" + "a" * 150])
def test_a_name_that_could_not_be_read_is_not_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be bundled"):
        write_archive(io.BytesIO(), [(name, tmp_path / "file")])


def test_a_file_that_changes_while_it_is_read_is_not_bundled(tmp_path: Path) -> None:
    class Growing(type(tmp_path)):  # type: ignore[misc]  # the class of the platform
        def open(self, *args: object, **options: object) -> Iterator[bytes]:
            Path(self).write_text("longer")
            return super().open(*args, **options)  # type: ignore[no-any-return]  # a file

    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="changed while it was read"):
        write_archive(io.BytesIO(), [("code/x", Growing(tmp_path / "file"))])
