"""Bundles: compared with their digests before anything is written, read as samples."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import is_bundle, load_samples
from assay.datasets.bundle_archive import write_archive
from assay.datasets.bundle_file import Bundle
from assay.errors import DatasetError
from assay.types import EvaluateResult, Sample

Manifest = dict[str, Any]


def lines(*samples: Sample) -> str:
    return "".join(f"{sample.to_json()}\n" for sample in samples)


SCORED = [
    Sample(id=f"q{n}", prompt=str(n), ground_truth=str(n), score=EvaluateResult(score=n / 2))
    for n in range(3)
]
CONTENT = {
    "code/evals/sums.py": "config = None\n",
    "dataset.jsonl": lines(*(Sample(id=each.id, prompt=each.prompt) for each in SCORED)),
    "results.jsonl": lines(*SCORED),
}


def manifest_of(content: dict[str, str]) -> Manifest:
    return {
        "format": "assay-bundle",
        "version": 1,
        "assay": "0.1",
        "runs": [
            {"id": "r", "name": "r", "status": "completed", "config": {}, "results": 3, "rows": 3}
        ],
        "code": {"kind": "eval", "files": ["evals/sums.py"]},
        "files": {
            name: {
                "size": len(text.encode()),
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            for name, text in content.items()
        },
    }


def write_bundle(
    folder: Path,
    content: dict[str, str] | None = None,
    *,
    change: Callable[[Manifest], object] | None = None,
    manifest_last: bool = False,
) -> Path:
    content = CONTENT if content is None else content
    manifest = manifest_of(CONTENT)
    if change is not None:
        change(manifest)
    parts = folder / "parts"
    parts.mkdir()
    named = {"manifest.json": json.dumps(manifest), **content}
    if manifest_last:
        named = {**content, "manifest.json": json.dumps(manifest)}
    members = []
    for number, (name, text) in enumerate(named.items()):
        (parts / str(number)).write_text(text)
        members.append((name, parts / str(number)))
    with (folder / "x.tar.gz").open("wb") as output:
        write_archive(output, members)
    return folder / "x.tar.gz"


def test_a_sound_bundle_is_opened_and_extracted_for_its_owner_alone(tmp_path: Path) -> None:
    bundle = Bundle.open(write_bundle(tmp_path))
    bundle.extract(tmp_path / "out")
    for name, text in CONTENT.items():
        assert (tmp_path / "out" / name).read_text() == text
        assert os.stat(tmp_path / "out" / name).st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "out").st_mode & 0o777 == 0o700


def test_samples_of_a_bundle_are_read_with_their_results(tmp_path: Path) -> None:
    stream = load_samples(write_bundle(tmp_path))
    assert [sample.reward for sample in stream] == [0.0, 0.5, 1.0]
    assert [sample.id for sample in stream] == ["q0", "q1", "q2"]  # a second pass


def test_a_bad_line_is_named_by_the_bundle_and_its_line(tmp_path: Path) -> None:
    content = {**CONTENT, "results.jsonl": CONTENT["results.jsonl"] + "{broken\n"}
    path = write_bundle(
        tmp_path, content, change=lambda given: given.update(files=manifest_of(content)["files"])
    )
    with pytest.raises(DatasetError, match=r"x\.tar\.gz:results\.jsonl:4"):
        list(load_samples(path))


HOSTILE: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "other format": (lambda given: given.update(format="zip"), "manifest.json: format"),
    "newer": (lambda given: given.update(version=2), "format version 2"),
    "unknown field": (lambda given: given.update(run_this="rm"), "manifest.json: run_this"),
    "wrong digest": (
        lambda given: given["files"]["code/evals/sums.py"].update(sha256="0" * 64),
        "does not have its listed digest",
    ),
    "wrong size": (
        lambda given: given["files"]["results.jsonl"].update(size=1),
        "does not have its listed size",
    ),
    "not listed": (
        lambda given: given["files"].pop("dataset.jsonl"),
        "does not list dataset.jsonl",
    ),
    "missing": (
        lambda given: given["files"].update({"code/b.py": {"size": 0, "sha256": "0" * 64}}),
        "'code/b.py' is missing",
    ),
    "elsewhere": (
        lambda given: given["files"].update({"bin/sh": {"size": 0, "sha256": "0" * 64}}),
        "not a part of a bundle",
    ),
    "much code": (
        lambda given: given["files"].update(
            {f"code/{n}": {"size": 60_000_000, "sha256": "0" * 64} for n in range(10)}
        ),
        "over",
    ),
    "code outside": (
        lambda given: given["code"].update(files=["../../evil.py"]),
        "leads out of its folder",
    ),
    "code that is not there": (
        lambda given: given["code"].update(files=["other.py"]),
        "not in code/",
    ),
    "imports from outside": (
        lambda given: given["code"].update(import_folders=["/tmp"]),
        "absolute path",
    ),
    "started outside": (lambda given: given["code"].update(folder=".."), "leads out"),
    "configuration that is no name": (
        lambda given: given["code"].update(config="x; import os"),
        "code.config",
    ),
    "no run": (lambda given: given.update(runs=[]), "manifest.json: runs"),
    "a run without an id": (lambda given: given["runs"][0].update(id=""), "runs.0.id"),
    "a time that acts on terminals": (
        lambda given: given["runs"][0].update(created_at="\x1b[2J2026-01-01"),
        "created_at",
    ),
    "a fingerprint that is none": (
        lambda given: given["runs"][0].update(config_fingerprint="\x1b[2J"),
        "config_fingerprint",
    ),
    "a status that is none": (
        lambda given: given["runs"][0].update(status="running"),
        "runs.0.status",
    ),
    "a count that no store has room for": (
        lambda given: given["runs"][0].update(repeats=2**63),
        "runs.0.repeats",
    ),
    "bounds in the wrong order": (
        lambda given: given["runs"][0].update(config={"bounds": [1, 0]}),
        "the lower one first",
    ),
    "bounds that no float can be": (
        lambda given: given["runs"][0].update(config={"bounds": [0, 10**400]}),
        "bounds",
    ),
    "a folder that is a file": (
        lambda given: given["code"].update(folder="evals/sums.py/deep"),
        "names the file 'evals/sums.py' as a folder",
    ),
    "bounds that are no numbers": (
        lambda given: given["runs"][0].update(config={"bounds": "ab"}),
        "bounds",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_manifest_that_does_not_fit_is_refused(case: str, tmp_path: Path) -> None:
    change, problem = HOSTILE[case]
    path = write_bundle(tmp_path, change=change)
    with pytest.raises(DatasetError, match=problem):
        Bundle.open(path)
    with pytest.raises(DatasetError, match=problem):
        next(iter(load_samples(path)))


def test_a_member_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    path = write_bundle(tmp_path, {**CONTENT, "code/hidden.py": "print()"})
    with pytest.raises(DatasetError, match=r"'code/hidden\.py' is not listed"):
        Bundle.open(path)


def test_the_manifest_comes_first(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"first member is not manifest\.json"):
        Bundle.open(write_bundle(tmp_path, manifest_last=True))


def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("{")
    with (tmp_path / "x.tar.gz").open("wb") as output:
        write_archive(output, [("manifest.json", tmp_path / "m")])
    with pytest.raises(DatasetError, match=r"manifest\.json ends in the middle of an object"):
        Bundle.open(tmp_path / "x.tar.gz")


def test_a_bundle_that_changed_after_it_was_opened_is_not_extracted(tmp_path: Path) -> None:
    bundle = Bundle.open(write_bundle(tmp_path))
    (tmp_path / "again").mkdir()
    other = write_bundle(tmp_path / "again", {**CONTENT, "code/evals/sums.py": "import os\n12"})
    os.replace(other, bundle.path)
    with pytest.raises(DatasetError, match="listed"):
        bundle.extract(tmp_path / "out")


def test_extraction_never_follows_or_overwrites_what_is_there(tmp_path: Path) -> None:
    bundle = Bundle.open(write_bundle(tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "out" / "results.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        bundle.extract(tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "kept"


def test_bundles_are_known_by_their_names() -> None:
    assert is_bundle("a/x.tar.gz")
    assert is_bundle("X.TGZ")
    assert not is_bundle("x.jsonl.gz")
