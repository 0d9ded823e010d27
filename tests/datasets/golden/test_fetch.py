"""`fetch_golden`: the digest is always taken, enforced where pinned, and nothing is left half."""

import hashlib
from pathlib import Path

import pytest

from assay.datasets import FetchRules, fetch_golden
from assay.errors import ConfigError, DatasetError
from web_server import ROW, serving

DIGEST = hashlib.sha256(ROW).hexdigest()


def test_the_copy_does_not_change_when_the_dataset_does(tmp_path: Path) -> None:
    original = tmp_path / "golden.jsonl"
    original.write_bytes(ROW)

    golden = fetch_golden("golden.jsonl", root=tmp_path, cache=tmp_path / "cache")
    original.write_bytes(b"changed")

    assert golden.path.read_bytes() == ROW
    assert golden.sha256 == DIGEST
    assert golden.path == tmp_path / "cache" / f"{DIGEST}.jsonl"


def test_the_pinned_dataset_is_taken_and_any_other_refused(tmp_path: Path) -> None:
    (tmp_path / "golden.jsonl").write_bytes(ROW)
    cache = tmp_path / "cache"
    pinned = fetch_golden("golden.jsonl", root=tmp_path, cache=cache, sha256=DIGEST)
    assert pinned.sha256 == DIGEST

    (tmp_path / "golden.jsonl").write_bytes(ROW * 2)
    with pytest.raises(DatasetError) as caught:
        fetch_golden("golden.jsonl", root=tmp_path, cache=cache, sha256=DIGEST)

    other = hashlib.sha256(ROW * 2).hexdigest()
    assert caught.value.message == (
        f"the dataset is not the pinned one: its sha256 is {other}, not {DIGEST}"
    )
    assert [path.name for path in cache.iterdir()] == [f"{DIGEST}.jsonl"]


def test_a_pinned_dataset_that_is_in_the_cache_is_not_fetched_again(tmp_path: Path) -> None:
    rules = FetchRules(allow_private=True)
    with serving() as web:
        uri = web.put("/golden.jsonl")
        first = fetch_golden(uri, root=None, cache=tmp_path, sha256=DIGEST, rules=rules)

    again = fetch_golden(uri, root=None, cache=tmp_path, sha256=DIGEST, rules=rules)

    assert (again.path, again.size) == (first.path, first.size)
    assert len(web.asked) == 1


def test_a_spoilt_file_in_the_cache_is_not_trusted(tmp_path: Path) -> None:
    rules = FetchRules(allow_private=True)
    (tmp_path / f"{DIGEST}.jsonl").write_bytes(b"spoilt")
    with serving() as web:
        uri = web.put("/golden.jsonl")

        golden = fetch_golden(uri, root=None, cache=tmp_path, sha256=DIGEST, rules=rules)

    assert golden.path.read_bytes() == ROW


@pytest.mark.parametrize("digest", ["", "ab", "g" * 64, DIGEST.upper()])
def test_a_pin_that_is_no_digest_is_refused(digest: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a SHA-256 digest"):
        fetch_golden("golden.jsonl", root=tmp_path, cache=tmp_path, sha256=digest)
