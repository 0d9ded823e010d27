"""`assay quickstart --train` as a user runs it: its figures, its files, and how it is stopped."""

import json
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.store import Store
from assay.train.output_folder import MetricsFile
from assay.train.step_statistics import StepMetrics

SHORT = ["quickstart", "--train", "--steps", "2", "--max-samples", "8"]


@dataclass(frozen=True)
class Taken:
    folder: Path
    said: dict[str, Any]
    shown: str

    @property
    def metrics(self) -> list[dict[str, Any]]:
        path = self.folder / "out" / "training" / "grpo" / "metrics.jsonl"
        return [without_times(step) for step in MetricsFile(path, StepMetrics).read()]


def without_times(step: StepMetrics) -> dict[str, Any]:
    return step.model_dump(exclude={"tokens_per_s", "rollout_s", "update_s"})


def take(folder: Path, *more: str) -> Taken:
    place = ["--output", str(folder / "out"), "--store", str(folder / "runs.db")]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        assert main([*SHORT, *place, "--json", *more]) == 0
    return Taken(folder, json.loads(out.getvalue()), err.getvalue())


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return take(tmp_path_factory.mktemp("lesson"))


def test_every_figure_comes_from_what_was_recorded(lesson: Taken) -> None:
    with Store.open(lesson.folder / "runs.db", create=False) as store:
        for way, answers in (("sampled", 32), ("greedy", 8)):
            for when in ("before", "after"):
                told = lesson.said[way][when]
                rewards = [each.reward for each in store.run(told["run"]).samples()]
                judged = [reward for reward in rewards if reward is not None]
                assert len(judged) == answers
                assert told["score"]["interval"]["mean"] == pytest.approx(sum(judged) / answers)
        assert sum(1 for _ in store.run(lesson.said["grpo"]["run"]).samples()) == 2 * 128
    assert lesson.said["grpo"]["rewards"] == [step["reward"] for step in lesson.metrics]
    assert lesson.said["demonstrations"]["wrong"] > 0
    spent = lesson.said["spent"]
    assert set(spent) == {"demonstrations", "before", "rewards", "after"}
    assert all(part["cpu_s"] > 0 for part in spent.values())


def test_it_leaves_two_models_and_a_picture_and_shows_its_progress(lesson: Taken) -> None:
    said = lesson.said

    for path in (said["sft"]["model"], said["grpo"]["model"]):
        assert (Path(path) / "model.safetensors").is_file()
    assert Path(said["grpo"]["picture"]).read_text("utf-8").startswith("<svg")
    for words in ("1/4", "2/2 loss", "3/4", "2/2 reward", "4/4"):
        assert words in lesson.shown


def test_the_same_seed_teaches_the_same_and_keeps_what_was_there(
    lesson: Taken, tmp_path: Path
) -> None:
    again = take(tmp_path)
    beside = take(tmp_path, "--seed", "1")

    assert again.metrics == lesson.metrics
    assert again.said["sft"]["last_loss"] == lesson.said["sft"]["last_loss"]
    assert beside.said["sft"]["last_loss"] != lesson.said["sft"]["last_loss"]
    assert "training-2" in beside.said["sft"]["model"]


def test_the_text_says_the_same_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*SHORT, "--quiet"]) == 0

    out, err = capsys.readouterr()
    told, _, following = out.partition("\nnext:")
    assert err == ""
    assert "of them with a wrong answer" in told
    assert "The control" in told
    assert "assay compare quickstart-before-sampled" in following
    assert all(len(line) <= 80 for line in told.splitlines())


@pytest.mark.parametrize("option", ["--steps", "--seed"])
def test_the_options_of_a_training_are_refused_without_one(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["quickstart", option, "3"]) == 2

    assert f"{option} has no effect without --train" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stage", ["loss", "reward"])
def test_ctrl_c_ends_it_with_130(stage: str, tmp_path: Path) -> None:
    steps = "1000000" if stage == "loss" else "20"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "assay",
            "quickstart",
            "--train",
            "--steps",
            steps,
            "--max-samples",
            "4",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any(stage in line for line in process.stderr)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (130, "")
    assert "start again with: assay quickstart --train" in err
    assert "Traceback" not in err


def test_without_torch_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.train.packages.find_spec", lambda name: None)

    assert main(["quickstart", "--train"]) == 2

    said = "training needs the package `torch`\n  hint: pip install 'assay-eval[train]'\n"
    assert capsys.readouterr() == ("", said)
    assert list(tmp_path.iterdir()) == []
