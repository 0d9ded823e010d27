"""`assay train sft`: what it prints, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.train_sft import build_sft_resume_command, format_sft_step
from assay.train import SFTStep
from recorded_runs import record, samples
from tiny_models import tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a few conversations."""
    made = tmp_path_factory.mktemp("sft")
    tiny_model(made, "smollm2")
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"what is {number}?"},
                {"role": "assistant", "content": "hello user"},
            ]
        }
        for number in range(6)
    ]
    (made / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def command(folder: Path, output: Path, *options: str) -> list[str]:
    data, model = str(folder / "chats.jsonl"), str(folder / "tiny-smollm2")
    return ["train", "sft", data, "--model", model, "-o", str(output), "--device", "cpu", *options]


def test_the_result_is_told_in_words(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--num-steps", "2", "--held-out", "0.2", "--max-length", "99"]

    assert main(command(folder, tmp_path / "out", *options)) == 0

    told = capsys.readouterr()
    assert told.out.splitlines()[:2] == [
        "samples       6 read, 4 sequences to train on",
        "              6 retokenized from text",
    ]
    assert "held out      " in told.out
    assert f"model         {tmp_path / 'out' / 'model'} (model string: local:" in told.out
    assert told.err.splitlines()[0].startswith("1/2 loss ")
    assert (tmp_path / "out" / "model" / "config.json").exists()


def test_a_bundle_is_learned_from_as_data(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, data = str(tmp_path / "a.db"), str(tmp_path / "x.tar.gz")
    run = record(tmp_path / "a.db", *samples(a=1.0, b=1.0, c=0.0))
    assert main(["bundle", run, "-o", data, "--no-code", "--store", store]) == 0
    capsys.readouterr()
    model, output = str(folder / "tiny-smollm2"), str(tmp_path / "out")
    words = ["--model", model, "-o", output, "--device", "cpu", "--num-steps", "1"]

    assert main(["train", "sft", data, *words, "--min-score", "1"]) == 0

    assert "samples       3 read, 2 sequences to train on" in capsys.readouterr().out


def test_the_result_is_told_as_json(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--epochs", "1", "--lora", "2", "--json", "--quiet"]

    assert main(command(folder, tmp_path / "out", *options)) == 0

    told = capsys.readouterr()
    result = json.loads(told.out)
    assert told.err == ""
    assert [result["samples"], result["sequences"], result["steps"]] == [6, 6, 1]
    assert result["held_out_before"] is None
    assert result["model"] == str(tmp_path / "out" / "model")


def test_a_finished_training_is_resumed_and_not_begun_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = command(folder, tmp_path / "out", "--num-steps", "1", "--quiet")

    assert [main(again), main(again), main([*again, "--resume"])] == [0, 2, 0]

    assert "the folder already contains a training" in capsys.readouterr().err


def test_the_old_name_of_the_number_of_steps_is_hidden(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = command(folder, tmp_path / "out", "--json", "--quiet", "--steps", "2")

    assert main(begin) == 0

    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert main([*begin, "--num-steps", "2"]) == 2
    assert "pass only `num_steps`" in capsys.readouterr().err
    main(["train", "sft", "--help"])
    assert "--steps" not in capsys.readouterr().out


WRONG: dict[str, tuple[list[str], str]] = {
    "a share above one": (["--held-out", "2"], "--held-out: Input should be less than 1"),
    "no steps": (["--num-steps", "0"], "'0' is not a number of 1 or more"),
    "warm-up only": (["--num-steps", "2", "--warmup-steps", "2"], "leave none of 2 steps"),
    "no training": (["--resume"], "the folder does not contain a training to resume"),
    "no model": (["--model", "nowhere"], "'nowhere' is not a folder"),
    "no device": (["--device", "banana"], "device='banana' cannot be used"),
    "nothing left": (["--max-length", "2"], "none is left to learn from"),
    "no template": (["--chat-template", "none.jinja"], "the chat template cannot be read"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_request_exits_2(
    wrong: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, problem = WRONG[wrong]

    assert main(command(folder, tmp_path / "out", *options)) == 2

    told = capsys.readouterr()
    assert problem in told.err
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "the file or folder does not exist"),
        ("", "the dataset is empty"),
        ("{no\n", "is not JSON"),
    ],
    ids=["missing", "empty", "not JSON"],
)
def test_data_that_cannot_be_learned_from_exits_2(
    text: str | None,
    problem: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "data.jsonl"
    if text is not None:
        data.write_text(text)
    model, output = folder / "tiny-smollm2", tmp_path / "out"

    assert main(["train", "sft", str(data), "--model", str(model), "-o", str(output)]) == 2

    assert problem in capsys.readouterr().err
    assert not output.exists()


def test_a_training_goes_on_under_its_own_settings_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(folder, tmp_path / "out", "--num-steps", "1", "--quiet")) == 0

    assert main(command(folder, tmp_path / "out", "--num-steps", "2", "--resume")) == 2

    assert "steps 1 -> 2" in capsys.readouterr().err


def test_a_training_that_breaks_off_exits_3_and_says_how_to_go_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = command(folder, tmp_path / "out", "--num-steps", "1", "--quiet")
    assert main(begin) == 0
    (tmp_path / "out" / "checkpoints" / "step-000001" / "tensors.pt").write_bytes(b"torn")

    assert main([*begin, "--resume"]) == 3

    told = capsys.readouterr().err
    assert "the checkpoint cannot be read" in told
    assert "--num-steps 1 --device cpu --resume" in told


def test_the_command_to_go_on_has_every_setting() -> None:
    from argparse import ArgumentParser

    from assay.cli import train_sft

    parser = ArgumentParser()
    train_sft.configure(parser)
    given: list[str] = ["my data.jsonl", "--model", "m", "-o", "out", "--lora", "4"]
    given += ["--learning-rate", "0.01", "--skip-unusable"]

    again = build_sft_resume_command(parser.parse_args(given))

    assert again == (
        "assay train sft 'my data.jsonl' --model m -o out --learning-rate 0.01 --lora 4 "
        "--skip-unusable --resume"
    )


def step(**fields: Any) -> SFTStep:
    known = {"step": 1, "of": 2, "epoch": 0.5, "loss": 1.25, "grad_norm": 1, "learning_rate": 1}
    sizes = {"sequences": 1, "trained_tokens": 2, "tokens": 30, "seconds": 0.5}
    return SFTStep.model_validate({**known, **sizes, **fields})


def test_a_step_is_one_line() -> None:
    assert format_sft_step(step()) == "loss 1.2500, epoch 0.50, 60 tokens/s"
    assert "held out 2.0000" in format_sft_step(step(held_out_loss=2.0))
