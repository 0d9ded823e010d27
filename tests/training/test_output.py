"""The output folder: it belongs to one training."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from assay.errors import ConfigError, TrainingError
from assay.training.output import Output


class Begun(BaseModel):
    run_id: str


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "out")


def test_a_new_folder_can_begin_one_but_not_go_on(output: Output) -> None:
    output.check(resume=False)

    with pytest.raises(ConfigError, match="no training here to go on with"):
        output.check(resume=True)


def test_a_folder_that_has_one_can_go_on_but_not_begin_another(output: Output) -> None:
    output.begin(Begun(run_id="a"))

    output.check(resume=True)
    with pytest.raises(ConfigError, match="there is a training here already"):
        output.check(resume=False)
    assert output.begun(Begun).run_id == "a"


def test_checking_leaves_nothing_behind(output: Output) -> None:
    output.check(resume=False)

    assert not output.folder.exists()
    assert list(output.folder.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/out"])
def test_a_place_where_nothing_can_be_written_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = Output(tmp_path / name)

    with pytest.raises(ConfigError, match="cannot be written: Not a directory"):
        output.check(resume=False)
    with pytest.raises(ConfigError, match="cannot be written"):
        output.make()


@pytest.mark.parametrize("name", ["model", "checkpoints", "metrics.jsonl", "reward.svg"])
def test_what_is_not_of_a_training_is_not_written_over(name: str, output: Output) -> None:
    (output.folder / name).mkdir(parents=True)

    with pytest.raises(ConfigError, match=f"{name}: not of a training"):
        output.check(resume=False)


def test_other_things_in_a_folder_are_not_in_the_way(output: Output) -> None:
    output.folder.mkdir()
    (output.folder / "notes.txt").write_text("")

    output.check(resume=False)

    assert [path.name for path in output.folder.iterdir()] == ["notes.txt"]


def test_a_folder_whose_training_cannot_be_read_says_so(output: Output) -> None:
    output.folder.mkdir()
    (output.folder / "training.json").write_text("{}")

    with pytest.raises(TrainingError, match=r"training\.json: cannot be read"):
        output.begun(Begun)
