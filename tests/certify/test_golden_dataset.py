"""The golden dataset of a plan: whole, pinned, and how a run deviates from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.certify import CertifySettings
from assay.certify.golden_dataset import LoadedGoldenDataset, open_golden
from assay.errors import ConfigError, DatasetError
from assay.types.manifest import EvaluationProfile
from certifying import golden, profile


def opened(
    folder: Path, fields: dict[str, Any] | None = None, **settings: Any
) -> LoadedGoldenDataset:
    made = EvaluationProfile.model_validate(profile(**(fields or {})))
    return open_golden(
        made,
        CertifySettings(**settings),
        root=folder,
        folder=folder / "fetched",
        where="agent.yaml: helper",
    )


def test_a_dataset_is_read_whole_before_anything_is_run(tmp_path: Path) -> None:
    golden(tmp_path, rows=5)

    found = opened(tmp_path)

    assert (found.rows, found.without_truth, found.uri) == (5, 0, "golden.jsonl")
    assert found.characters == 5 * len("Say 0")
    assert [sample.id for sample in found.samples] == ["q0", "q1", "q2", "q3", "q4"]
    assert found.samples.name == "golden.jsonl"
    assert found.deviations == ()


def test_the_first_samples_come_again_where_there_are_too_few(tmp_path: Path) -> None:
    golden(tmp_path, rows=2)

    assert [sample.id for sample in opened(tmp_path).first(3)] == ["q0", "q1", "q0"]
    assert list(opened(tmp_path).first(0)) == []


def test_fewer_samples_or_another_dataset_are_deviations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden(tmp_path)
    monkeypatch.chdir(tmp_path)
    other = golden(tmp_path, rows=2, name="other.jsonl")

    assert opened(tmp_path, max_samples=2).deviations == ("only 2 samples of the dataset were run",)
    assert opened(tmp_path, max_samples=2).rows == 2
    assert len(opened(tmp_path, dataset=str(other)).deviations) == 1
    assert opened(tmp_path, {"golden_dataset_uri": None}, dataset="other.jsonl").rows == 2


def test_a_dataset_that_was_changed_is_refused(tmp_path: Path) -> None:
    golden(tmp_path)

    with pytest.raises(DatasetError, match="the dataset is not the pinned one"):
        opened(tmp_path, {"golden_dataset_sha256": "0" * 64})


def test_a_bad_row_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "golden.jsonl").write_text('{"id": "a", "question": "?"}\n{"id": "b" oops}\n')

    with pytest.raises(DatasetError, match=r"golden\.jsonl:2"):
        opened(tmp_path)


def test_without_a_dataset_there_is_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`golden_dataset_uri` is missing"):
        opened(tmp_path, {"golden_dataset_uri": None})


def test_samples_without_a_ground_truth_are_counted(tmp_path: Path) -> None:
    (tmp_path / "golden.jsonl").write_text(json.dumps({"id": "a", "question": "?"}) + "\n")

    assert opened(tmp_path).without_truth == 1
