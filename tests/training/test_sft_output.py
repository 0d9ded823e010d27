"""The folder of a fine-tuning: to whom it belongs, and what it remembers."""

from pathlib import Path

import pytest

from assay.errors import ConfigError, TrainingError
from assay.training import SFTStep
from assay.training.sft_output import Begun, SFTOutput

BEGUN = Begun(config="c", data="d", weights="w", held_out_loss=1.5)


def step(number: int) -> SFTStep:
    return SFTStep(
        step=number,
        of=9,
        epoch=0.5,
        loss=1.0,
        grad_norm=1.0,
        learning_rate=0.1,
        sequences=1,
        trained_tokens=2,
        tokens=3,
        seconds=0.1,
    )


@pytest.fixture
def output(tmp_path: Path) -> SFTOutput:
    made = SFTOutput(tmp_path / "out")
    made.check(resume=False)
    return made


def test_a_folder_with_a_training_is_not_begun_again(output: SFTOutput) -> None:
    output.begin(BEGUN)

    with pytest.raises(ConfigError, match="there is a training here already"):
        output.check(resume=False)
    output.check(resume=True)


def test_a_folder_without_one_cannot_be_gone_on_with(output: SFTOutput) -> None:
    with pytest.raises(ConfigError, match="no training here to go on with"):
        output.check(resume=True)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written"):
        SFTOutput(tmp_path / "file" / "out").check(resume=False)


def test_a_training_goes_on_with_what_it_began_with(output: SFTOutput) -> None:
    output.begin(BEGUN)

    assert output.go_on(BEGUN.model_copy(update={"held_out_loss": None})) == BEGUN


@pytest.mark.parametrize("name", ["config", "data", "weights"])
def test_a_training_does_not_go_on_with_anything_else(output: SFTOutput, name: str) -> None:
    output.begin(BEGUN)

    with pytest.raises(ConfigError, match="that training began with"):
        output.go_on(BEGUN.model_copy(update={name: "other"}))


def test_what_it_began_with_must_be_readable(output: SFTOutput) -> None:
    (output.folder / "training.json").write_text('{"config": 3}')

    with pytest.raises(TrainingError, match=r"training.json: cannot be read"):
        output.go_on(BEGUN)


def test_steps_after_a_checkpoint_are_forgotten(output: SFTOutput) -> None:
    for number in (1, 2, 3):
        output.append(step(number))

    assert output.steps_until(2) == [step(1), step(2)]
    assert output.steps_until(9) == [step(1), step(2)]


def test_a_line_that_a_killed_process_left_behind_does_not_count(output: SFTOutput) -> None:
    output.append(step(1))
    with output.metrics.open("a") as file:
        file.write('{"step": 2, "lo')

    assert output.steps_until(9) == [step(1)]
    assert output.metrics.read_text().endswith("}\n")


def test_a_line_that_is_no_step_is_named(output: SFTOutput) -> None:
    output.append(step(1))
    with output.metrics.open("a") as file:
        file.write("{}\n")

    with pytest.raises(TrainingError, match=r"metrics.jsonl:2: is not the metrics of a step"):
        output.steps_until(9)
