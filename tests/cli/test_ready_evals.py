"""Ready evaluations: found by name, listed, and never in the way of a file of the user."""

import json
import sys
from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.eval_file import load_eval_file
from assay.cli.ready_evals import find_own_evals, find_ready_eval
from assay.datasets import SampleStream
from assay.errors import ConfigError
from assay.runner import expect_endpoint

EVALS = Path(__file__).parents[2] / "examples" / "evals"
NAMES = ["browsecomp", "fix_tests", "gsm8k", "tool_calls"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    return tmp_path


def install_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Make a distribution importable that registers the evaluation `tickets`."""
    packages = folder / "packages"
    info = packages / "acme_evals-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-evals\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[assay.evals]\ntickets = {value}\n")
    (packages / "acme_tickets.py").write_text(
        "from assay.runner import EvalConfig\n"
        "config = EvalConfig(score_fn='exact_answer', name='tickets')\n"
        "dataset = [{'question': 'a', 'answer': 'a'}]\n"
        "number = 5\n"
    )
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "acme_tickets", raising=False)


def test_each_evaluation_has_a_sample_of_its_data_and_one_line_about_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)

    assert list(listed) == NAMES == list(find_own_evals())
    for name, entry in listed.items():
        assert entry["file"] == str(EVALS / f"{name}.py")
        assert 20 < len(entry["about"]) < 90
        with expect_endpoint():
            rows = load_eval_file(name).dataset
        assert isinstance(rows, SampleStream)
        samples = list(rows)
        assert 10 <= len(samples) <= 20
        assert all(each.ground_truth is not None for each in samples)


def test_the_list_is_a_line_for_each_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "gsm8k       GSM8K: grade-school word problems, scored by the final number."
    assert lines[-1] == "next: assay eval NAME --agent openai:gpt-5"


def test_an_unknown_name_is_answered_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "gsm9k", "--agent", "mock:echo"]) == 2

    error = capsys.readouterr().err
    assert "no file, folder or ready evaluation is named 'gsm9k'" in error
    assert "browsecomp, fix_tests, gsm8k, tool_calls" in error


def test_a_folder_of_that_name_comes_first_and_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "gsm8k").mkdir()

    assert find_ready_eval("gsm8k") is None
    assert main(["eval", "gsm8k", "--agent", "mock:echo"]) == 2
    assert "the file or folder gsm8k here comes before the ready" in capsys.readouterr().err


def test_without_an_agent_nothing_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        assert main(["eval", name]) == 2
        assert "--agent" in capsys.readouterr().err


def test_a_package_registers_an_evaluation(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin(folder, monkeypatch, "acme_tickets")

    assert main(["eval", "tickets", "--agent", "mock:echo", "--quiet"]) == 0
    assert "score         1.000" in capsys.readouterr().out
    assert main(["eval", "--list"]) == 0
    assert "tickets     registered by acme-evals 1.0\n" in capsys.readouterr().out


def test_a_plugin_that_is_not_a_module_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin(folder, monkeypatch, "acme_tickets:number")

    with pytest.raises(ConfigError, match="of type `int`, not a module"):
        find_ready_eval("tickets")
    assert main(["eval", "--list"]) == 0
    assert "unusable: the evaluation is of type `int`" in capsys.readouterr().out
