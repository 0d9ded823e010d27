"""The run of an output folder: begun once, and claimed again by the same training alone."""

from pathlib import Path

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import Store
from assay.train.output_folder import OutputFolder
from assay.train.training_session import TrainingSession
from lamps import trained


def test_one_run_belongs_to_a_folder_over_a_resume(tmp_path: Path) -> None:
    first = trained(tmp_path, num_steps=1)

    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    second = trained(tmp_path, num_steps=2, session=session)

    assert first.run_id == second.run_id
    with Store.open(tmp_path / "store.db") as store:
        assert [run.id for run in store.runs()] == [first.run_id]


def test_other_weights_are_not_those_that_a_reference_was_made_of(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=1, beta=0.1)
    text = (tmp_path / "out" / "training.json").read_text()
    digest = text.split('"initial_weights":"')[1].split('"')[0]
    (tmp_path / "out" / "training.json").write_text(text.replace(digest, "0" * len(digest)))
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match="the model is not the one that training began with"):
        trained(tmp_path, num_steps=2, beta=0.1, session=session)


def test_a_folder_that_cannot_be_made_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.output_folder._check_writable", lambda folder: None)
    (tmp_path / "out").write_text("")

    with pytest.raises(ConfigError, match="out: the folder cannot be written"):
        trained(tmp_path)
    with Store.open(tmp_path / "store.db") as store:
        assert store.runs() == []


def test_a_folder_that_another_training_has_leaves_no_run_behind(tmp_path: Path) -> None:
    with (
        OutputFolder(tmp_path / "out").claim(resume=False),
        pytest.raises(ConfigError, match=r"out: process \d+ on .* is training in this folder"),
    ):
        trained(tmp_path)

    with Store.open(tmp_path / "store.db") as store:
        assert store.runs() == []


def test_a_run_that_cannot_begin_leaves_its_folder_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full", where="store.db")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "start_run", full)
        with pytest.raises(StoreError, match="the disk is full"):
            trained(tmp_path)

    assert not trained(tmp_path, num_steps=1).interrupted


def test_a_training_is_gone_on_with_by_one_process_unless_taken_over(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    trained(tmp_path, num_steps=1)

    with OutputFolder(tmp_path / "out").claim(resume=True):
        with pytest.raises(ConfigError, match="is training in this folder"):
            trained(tmp_path, session=TrainingSession(store=store, resume=True))
        session = TrainingSession(store=store, resume=True, take_over=True)
        assert len(trained(tmp_path, session=session).steps) == 2
