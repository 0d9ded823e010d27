"""What a fine-tuning began with: it goes on only with the same."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.train.output_folder import OutputFolder
from assay.train.sft_output import SFTStart, check_same_start

BEGUN = SFTStart(config={"seed": 0, "steps": 2}, data="d", weights="w", held_out_loss=1.5)


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    made = OutputFolder(tmp_path / "out")
    made.begin(BEGUN)
    return made


def test_a_training_goes_on_with_what_it_began_with(output: OutputFolder) -> None:
    assert check_same_start(output, BEGUN.model_copy(update={"held_out_loss": None})) == BEGUN


@pytest.mark.parametrize("name", ["data", "weights"])
def test_a_training_does_not_go_on_with_anything_else(output: OutputFolder, name: str) -> None:
    with pytest.raises(ConfigError, match="that training began with"):
        check_same_start(output, BEGUN.model_copy(update={name: "other"}))


def test_the_settings_that_differ_are_named(output: OutputFolder) -> None:
    other = BEGUN.model_copy(update={"config": {"seed": 4, "epochs": 1}})

    with pytest.raises(ConfigError, match="epochs None -> 1, seed 0 -> 4, steps 2 -> None"):
        check_same_start(output, other)
