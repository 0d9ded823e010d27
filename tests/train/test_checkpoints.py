"""Checkpoints: whole or not there, whatever happens while one is written."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import TrainingError
from assay.train.checkpoints import Checkpoints, TrainingProgress, digest_weights, write_folder


def tensors(value: float) -> dict[str, Any]:
    return {"weights": {"w": torch.full((3,), value)}}


class Killed(BaseException):
    """As sudden as the end of a process."""


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)

    checkpoints.save(TrainingProgress(step=4, position=9), tensors(1.5))

    progressed, loaded = checkpoints.load(4)
    assert progressed == TrainingProgress(step=4, position=9)
    assert loaded["weights"]["w"].tolist() == [1.5] * 3


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)

    for step in (8, 9, 10, 11):
        checkpoints.save(TrainingProgress(step=step), tensors(step))

    assert checkpoints.steps() == [10, 11]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000010", "step-000011"]


def test_a_copy_under_another_name_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(TrainingProgress(step=1), tensors(1))
    shutil.copytree(tmp_path / "step-000001", tmp_path / "step-000001-best")

    checkpoints.save(TrainingProgress(step=2), tensors(2))

    assert checkpoints.steps() == [2]
    assert (tmp_path / "step-000001-best").exists()


@pytest.mark.parametrize("place", ["torch.save", "pathlib.Path.rename", "os.fsync"])
def test_a_kill_while_one_is_written_leaves_the_older_one(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(TrainingProgress(step=1), tensors(1))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(place, killed)
        with pytest.raises(Killed):
            checkpoints.save(TrainingProgress(step=2), tensors(2))

    assert checkpoints.steps() == [1]
    assert checkpoints.load(1)[1]["weights"]["w"].tolist() == [1.0] * 3
    checkpoints.save(TrainingProgress(step=2), tensors(2))
    assert checkpoints.steps() == [2]


def test_a_file_that_was_cut_off_while_writing_is_no_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "step-000003"
    folder.mkdir()
    (folder / "tensors.pt").write_bytes(b"half")

    assert Checkpoints(tmp_path, keep=2).steps() == []


@pytest.mark.parametrize(("name", "content"), [("tensors.pt", b"x"), ("state.json", b"{")])
def test_a_damaged_one_says_which_and_what_to_do(name: str, content: bytes, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    (checkpoints.save(TrainingProgress(step=3), tensors(1)) / name).write_bytes(content)

    with pytest.raises(TrainingError, match=r"(?s)step-000003: .*cannot be read.*remove this"):
        checkpoints.load(3)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    path = checkpoints.save(TrainingProgress(step=3), tensors(1))
    torch.save({"weights": Path("not a tensor")}, path / "tensors.pt")

    with pytest.raises(TrainingError, match="cannot be read"):
        checkpoints.load(3)


def test_one_of_another_step_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(TrainingProgress(step=3), tensors(1)).rename(tmp_path / "step-000007")

    with pytest.raises(TrainingError, match="the checkpoint is of step 3"):
        checkpoints.load(7)


def test_a_folder_takes_the_place_of_an_older_one_at_once(tmp_path: Path) -> None:
    def fill(text: str) -> Any:
        return lambda folder: (folder / "file").write_text(text)

    write_folder(tmp_path / "model", fill("old"))
    write_folder(tmp_path / "model", fill("new"))

    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "file").read_text() == "new"


def test_a_digest_tells_weights_apart_to_the_bit() -> None:
    one, other = torch.ones(4), torch.ones(4)
    same = digest_weights({"a": one, "b": other})

    other[2] = torch.nextafter(other[2], torch.tensor(2.0))

    assert digest_weights({"b": torch.ones(4), "a": one}) == same
    assert digest_weights({"a": one, "b": other}) != same
    assert digest_weights({"a": one.bfloat16()}) != digest_weights({"a": one})
