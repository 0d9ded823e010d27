"""`assay train`: which ways of training there are."""

import pytest

from assay.cli import main


def test_both_ways_of_training_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0

    shown = capsys.readouterr().out
    assert "sft       fine-tune a model on samples" in shown
    assert "grpo      train a model on the scores" in shown


@pytest.mark.parametrize("way", ["sft", "grpo"])
def test_each_way_explains_itself(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", way, "--help"]) == 0

    assert capsys.readouterr().out.startswith(f"usage: assay train {way} ")


@pytest.mark.parametrize("argv", [["train"], ["train", "dpo"]])
def test_another_way_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2

    assert capsys.readouterr().err.startswith("assay train: ")
