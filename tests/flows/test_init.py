"""A project of `assay init`: every command that it prints works from an empty folder."""

import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from commands import build_environment, run_process

PROGRAMS = {"assay": [sys.executable, "-m", "assay"], "pytest": [sys.executable, "-m", "pytest"]}


def run_command(folder: Path, words: list[str]) -> "subprocess.CompletedProcess[str]":
    # Without `-p no:cacheprovider`: as a user runs it.
    return subprocess.run(
        [*PROGRAMS[words[0]], *words[1:]],
        cwd=folder,
        env=build_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


def test_the_printed_commands_and_those_of_the_workflow_pass(tmp_path: Path) -> None:
    written = run_process(tmp_path, "init", "evals")
    lines = written.stdout.split("next:\n")[1].splitlines()
    folder, outputs = tmp_path, {}

    for line in lines:
        words = shlex.split(line)
        if words[0] == "cd":
            folder = folder / words[1]
            continue
        ended = run_command(folder, words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        outputs[line.strip()] = ended.stdout

    assert written.returncode == 0
    assert outputs["assay eval evaluation.py"].startswith("score         1.000 [")
    assert "passed  test_agent.py::test_sums" in outputs["pytest"]
    readme = (folder / "README.md").read_text()
    assert [line[2:] for line in readme.splitlines() if line.startswith("$ ")] == list(outputs)
    workflow = yaml.safe_load((folder / ".github/workflows/evaluation.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["evaluate"]["steps"] if "run" in step]
    assert steps == ["pip install assay-eval pytest", "pytest"]


def test_a_worse_agent_fails_its_test(tmp_path: Path) -> None:
    run_process(tmp_path, "init")
    (tmp_path / "agent.py").write_text("def answer(sample):\n    return '42'\n")

    ended = run_command(tmp_path, ["pytest"])

    assert ended.returncode == 1
    assert "threshold 0.800" in ended.stdout
