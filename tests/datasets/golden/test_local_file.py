"""Local golden datasets stay in the manifest's folder."""

import os
from pathlib import Path

import pytest

from assay.datasets import FetchRules, GoldenDataset, fetch_golden
from assay.errors import DatasetError

ROW = '{"id": "a", "question": "1+1?", "answer": "2"}\n'


def fetched(uri: str, root: Path | None, rules: FetchRules | None = None) -> GoldenDataset:
    cache = (root or Path()) / "cache"
    return fetch_golden(uri, root=root, cache=cache, rules=rules)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "here"
    (root / "data").mkdir(parents=True)
    (root / "data" / "golden set.jsonl").write_text(ROW)
    (tmp_path / "out.jsonl").write_text(ROW)
    (tmp_path / "here-evil").mkdir()
    (tmp_path / "here-evil" / "out.jsonl").write_text(ROW)
    (root / "link.jsonl").symlink_to(tmp_path / "out.jsonl")
    (root / "linked").symlink_to(tmp_path)
    (root / "inside.jsonl").symlink_to(root / "data" / "golden set.jsonl")
    os.mkfifo(root / "pipe.jsonl")
    return root


@pytest.mark.parametrize(
    "uri", ["data/golden set.jsonl", "./data/../data/golden set.jsonl", "inside.jsonl"]
)
def test_a_path_inside_the_folder_is_copied(uri: str, root: Path) -> None:
    golden = fetched(uri, root)

    assert golden.path.read_text() == ROW
    assert golden.path.parent == root / "cache"
    assert (golden.uri, golden.size, golden.etag, golden.version) == (uri, len(ROW), None, None)


def test_a_file_address_inside_the_folder_is_copied(root: Path) -> None:
    assert fetched(f"file://{root}/data/golden%20set.jsonl", root).path.read_text() == ROW


@pytest.mark.parametrize(
    "uri",
    [
        "../out.jsonl",
        "link.jsonl",
        "linked/out.jsonl",
        "../here-evil/out.jsonl",
        "{root}/../out.jsonl",
    ],
)
def test_a_path_out_of_the_folder_is_refused_unless_that_is_waived(uri: str, root: Path) -> None:
    uri = uri.format(root=root)
    expected = r"the path leads out of the folder of the manifest\n.*allow-outside"
    with pytest.raises(DatasetError, match=expected):
        fetched(uri, root)

    assert fetched(uri, root, FetchRules(allow_outside=True)).path.read_text() == ROW


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("none.jsonl", "the file does not exist"),
        ("data", "the path is a folder"),
        ("pipe.jsonl", "the path is not a regular file"),
        ("a" * 300, "cannot be read: File name too long"),
    ],
)
def test_what_is_no_file_is_refused(uri: str, said: str, root: Path) -> None:
    with pytest.raises(DatasetError, match=said):
        fetched(uri, root)

    assert not (root / "cache").exists() or list((root / "cache").iterdir()) == []


def test_without_a_folder_a_path_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the path is relative, and no root folder is given"):
        fetch_golden("a.jsonl", root=None, cache=tmp_path)
    with pytest.raises(DatasetError, match="leads out"):
        fetch_golden(f"{root}/inside.jsonl", root=None, cache=tmp_path)
    rules = FetchRules(allow_outside=True)
    assert fetch_golden(f"{root}/inside.jsonl", root=None, cache=tmp_path, rules=rules).size


def test_a_file_over_the_bound_is_refused(root: Path) -> None:
    with pytest.raises(DatasetError, match="the file is too large; at most 10 bytes are fetched"):
        fetched("inside.jsonl", root, FetchRules(max_bytes=10))
