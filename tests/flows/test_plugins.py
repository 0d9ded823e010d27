"""A package of somebody else, installed by pip: one plug-in of each group, used by its name.

The package is the one that docs/extending.md shows.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.types import Sample
from commands import Ended, run_process

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SOURCE = Path(__file__).parents[2] / "src"


def shown_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.M)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package of the page is installed in."""
    project = tmp_path_factory.mktemp("acme-assay")
    module, *_ = shown_blocks("python")
    (project / "acme_assay.py").write_text(module)
    (project / "pyproject.toml").write_text(*shown_blocks("toml"))
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--target", str(target)]
    subprocess.run([*command, *offline, str(project)], check=True, timeout=300)
    return target


def assay(folder: Path, installed: Path, *words: str) -> Ended:
    return run_process(folder, *words, PYTHONPATH=f"{SOURCE}:{installed}")


def test_doctor_lists_all_of_them_with_their_package(installed: Path, tmp_path: Path) -> None:
    text = assay(tmp_path, installed, "doctor")
    found = assay(tmp_path, installed, "doctor", "--json")

    assert (text.returncode, found.returncode) == (0, 0), text.stderr + found.stderr
    plugins = json.loads(found.stdout)["plugins"]
    foreign = {
        group: [each for each in entries if each["origin"] != "assay"]
        for group, entries in plugins.items()
    }
    names = {
        "providers": "acme",
        "agents": "parrot",
        "environments": "echo",
        "scorers": "polite",
        "check_rules": "max_words",
        "session_sources": "acme",
        "export_formats": "acme-pairs",
        "evals": "politeness",
        "metric_sinks": "csv",
    }
    assert foreign == {
        group: [{"name": name, "origin": "acme-assay 1.0", "error": None}]
        for group, name in names.items()
    }
    for name in names.values():
        assert f"\n              {name} (acme-assay 1.0)\n" in text.stdout


def evaluate(folder: Path, installed: Path, target: str) -> dict[str, Sample]:
    """The recorded samples of one evaluation, by id."""
    store = ("--store", "runs.db", "--json")
    ended = assay(folder, installed, "eval", target, *store)
    assert ended.returncode == 0, ended.stderr
    run = json.loads(ended.stdout)["run"]
    written = assay(folder, installed, "export", "sample", run, "-o", f"{run}.jsonl", *store)
    assert written.returncode == 0, written.stderr
    lines = (folder / f"{run}.jsonl").read_text().splitlines()
    return {sample.id: sample for sample in map(Sample.from_json, lines)}


def test_an_evaluation_names_provider_environment_and_scorer(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "evals.py").write_text(shown_blocks("python")[1])

    samples = evaluate(tmp_path, installed, "evals.py")

    assert {name: each.response for name, each in samples.items()} == {
        "a": "PLEASE ADD 2 AND 2.",
        "b": "ADD 2 AND 3.",
    }
    assert {name: each.reward for name, each in samples.items()} == {"a": 1.0, "b": 0.0}
    trajectory = samples["b"].trajectory
    assert trajectory is not None
    assert trajectory.terminated
    assert [call.model for call in trajectory.calls] == ["loud-1"]


def test_an_evaluation_names_an_agent_with_settings_and_lists_scorers(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "evals.py").write_text(shown_blocks("python")[1])

    samples = evaluate(tmp_path, installed, "evals.py:repeated")

    assert samples["b"].response == "Add 2 and 3. Add 2 and 3. Add 2 and 3."
    score = samples["a"].score
    assert score is not None
    assert {name: metric.score for name, metric in score.metrics.items()} == {
        "polite": 1.0,
        "json_valid": 0.0,
    }


def test_the_commands_of_the_page_use_its_names(installed: Path, tmp_path: Path) -> None:
    turns = {"short": "Fine.", "long": "It is fine, as far as I can see."}
    (tmp_path / "recorded.txt").write_text(
        "".join(
            json.dumps({"id": name, "turns": [["user", "How is it?"], ["assistant", text]]}) + "\n"
            for name, text in turns.items()
        )
    )
    (tmp_path / "checks.yaml").write_text("checks:\n  - max_words: 3\n")
    # The commands of the page, without `assay doctor`.
    commands = re.findall(r"^\$ assay (.*)$", shown_blocks("console")[1], re.M)

    ended = [assay(tmp_path, installed, *line.split(), "--json") for line in commands]

    assert [each.returncode for each in ended] == [0, 0, 1, 0], [each.stderr for each in ended]
    assert [line.split()[0] for line in commands] == ["eval", "ingest", "check", "export"]
    tally = {"passed": 1, "failed": 1, "not_judged": 0}
    assert json.loads(ended[0].stdout)["summary"]["score"]["interval"]["mean"] == 0.5
    assert json.loads(ended[2].stdout)["checks"] == [{"name": "max_words", "weight": None, **tally}]
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert rows == [{"question": "How is it?", "answer": text} for text in turns.values()]


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "evals.py").write_text(shown_blocks("python")[1])

    ended = run_process(tmp_path, "eval", "evals.py", "--store", "runs.db")

    assert ended.returncode == 2
    assert "the string does not name an agent" in ended.stderr
