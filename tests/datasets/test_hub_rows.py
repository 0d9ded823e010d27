"""Hugging Face datasets, with the real library and without the network."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.datasets import ReadLimits, load_samples
from assay.datasets.hub_rows import HubRows
from assay.errors import BadRow, ConfigError, DatasetError
from assay.types import Sample

ROWS = [{"question": f"{n}+{n}", "answer": str(2 * n)} for n in range(5)]


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import datasets.config
    import datasets.utils.logging
    import huggingface_hub.constants

    # Both libraries read the environment once, when they are imported.
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    datasets.utils.logging.disable_progress_bar()
    yield
    datasets.utils.logging.enable_progress_bar()


def saved(folder: Path, *splits: str) -> Path:
    from datasets import Dataset, DatasetDict

    dataset = Dataset.from_list(ROWS)
    (DatasetDict(dict.fromkeys(splits, dataset)) if splits else dataset).save_to_disk(folder)
    return folder


def data_files(folder: Path, *splits: str) -> Path:
    folder.mkdir()
    for split in splits:
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        (folder / f"{split}.jsonl").write_text(lines)
    return folder


def test_a_saved_dataset_is_read_again_and_again(tmp_path: Path) -> None:
    stream = load_samples(saved(tmp_path / "d"), max_samples=3)

    assert [sample.input for sample in stream] == ROWS[:3]
    assert [sample.ground_truth for sample in stream] == ["0", "2", "4"]


def test_one_of_several_saved_splits_is_chosen_by_name(tmp_path: Path) -> None:
    folder = saved(tmp_path / "d", "train", "test")

    assert len(list(load_samples(folder, split="test"))) == 5
    with pytest.raises(ConfigError, match=r"has several splits\n.*one of 'train', 'test'"):
        list(load_samples(folder))
    with pytest.raises(ConfigError, match=r"has no split 'dev'\n.*one of 'train', 'test'"):
        list(load_samples(folder, split="dev"))


def test_the_only_split_needs_no_name(tmp_path: Path) -> None:
    assert len(list(load_samples(saved(tmp_path / "d", "train")))) == 5


def test_a_dataset_saved_without_splits_refuses_a_split(tmp_path: Path) -> None:
    expected = r"has no split 'train'\n.*omit split=: it has one unnamed split"
    with pytest.raises(ConfigError, match=expected):
        list(load_samples(saved(tmp_path / "d"), split="train"))


def test_a_folder_of_data_files_is_read_by_split(tmp_path: Path) -> None:
    folder = data_files(tmp_path / "d", "train", "test")

    assert [sample.prompt for sample in load_samples(str(folder), split="test")] == [
        row["question"] for row in ROWS
    ]
    with pytest.raises(ConfigError, match="has several splits"):
        list(load_samples(folder))
    with pytest.raises(DatasetError, match=r"cannot be loaded: .*dev"):
        list(load_samples(folder, split="dev"))


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    expected = r"cannot be loaded: .*\n  hint: the folder must contain"
    with pytest.raises(DatasetError, match=expected):
        list(load_samples(tmp_path))


def test_a_folder_named_like_a_format_is_read_as_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_files(tmp_path / "json", "train")
    monkeypatch.chdir(tmp_path)

    assert len(list(load_samples("json"))) == 5


def test_code_in_a_folder_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "d.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")

    with pytest.raises(DatasetError, match="cannot be loaded"):
        list(load_samples(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["org/no-such-dataset", "no-such-dataset:main"])
def test_a_name_out_of_reach_says_that_it_is_no_path_either(name: str) -> None:
    stream = load_samples(name)

    with pytest.raises(DatasetError, match=f"{name}: no file or folder has this name"):
        list(stream)


def test_a_loaded_dataset_is_rows_in_memory() -> None:
    from datasets import Dataset

    stream = load_samples(Dataset.from_list(ROWS))

    assert [sample.prompt for sample in stream] == [row["question"] for row in ROWS]


def test_nan_in_a_split_is_a_bad_row(tmp_path: Path) -> None:
    from datasets import Dataset

    Dataset.from_list([{"question": "a", "x": float("nan")}]).save_to_disk(tmp_path / "d")

    ((_, found),) = HubRows(tmp_path / "d", None, ReadLimits())

    assert isinstance(found, BadRow)
    assert found.where == f"{tmp_path / 'd'}[0]"


def test_a_date_is_the_text_that_is_recorded_of_it(tmp_path: Path) -> None:
    from datasets import Dataset

    day = datetime(2026, 1, 2, tzinfo=UTC)
    Dataset.from_list([{"question": "a", "answer": day}]).save_to_disk(tmp_path / "d")

    (sample,) = load_samples(tmp_path / "d")

    assert sample.ground_truth == "2026-01-02T00:00:00Z"
    assert Sample.from_json(sample.to_json()) == sample


def test_a_data_file_that_breaks_off_is_an_error_with_its_place(tmp_path: Path) -> None:
    folder = data_files(tmp_path / "d", "train")
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"question": ')

    with pytest.raises(DatasetError, match="cannot be"):
        list(load_samples(folder))
