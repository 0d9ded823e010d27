"""The commands that commands print work when they are pasted into a shell."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import build_environment, call_main

EVALUATION = """
from pathlib import Path

from assay import EvalConfig, Score


def answer(sample):
    if not Path("repaired").exists() and sample.id == "two words":
        raise ValueError("broken")
    return "Rome"


def correct(sample):
    worst = Path("worst").read_text("utf-8") if Path("worst").exists() else None
    return Score(score=float(sample.id != worst), reason="it's a `reason`")


config = EvalConfig(agent=answer, score_fn=correct, name="my run's", repeats=2)
dataset = "questions.jsonl"
"""
IDS = ["two words", "it's", "-dash", '$HOME "`id`"', "esc\x1b[2J", "tab\there", "#1", "漢字"]
STORE = "a store's $HOME.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my \"project\" $HOME 'x'"
    made.mkdir()
    (made / "my eval.py").write_text(EVALUATION, "utf-8")
    rows = [{"id": name, "question": f"{name}?", "answer": "Rome"} for name in IDS]
    text = "\n".join(json.dumps(row) for row in rows)
    (made / "questions.jsonl").write_text(text, "utf-8")
    return made


def find_commands(printed: str) -> list[str]:
    """Return the commands on lines of their own, and those beside an example."""
    lines = (line.rpartition("  assay ")[2] for line in printed.splitlines() if "  assay " in line)
    return [f"assay {line}" for line in lines if "OTHER_RUN" not in line]


def paste(folder: Path, command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a shell that finds `assay`."""
    program = f'assay() {{ {sys.executable} -W error -m assay "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"{program}\n{command}"],
        cwd=folder,
        env=build_environment(**{"LC_ALL": "C.UTF-8", **environment}),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


def test_what_an_evaluation_prints_works_when_it_is_pasted(folder: Path) -> None:
    words = ["eval", "my eval.py", "--store", STORE, "--name=-night's run", "--quiet"]

    done = call_main(folder, *words, "--repeats", "2")

    assert done.returncode == 3
    show, failed, resume = find_commands(done.stdout + done.stderr)
    assert paste(folder, show).returncode == 0
    assert "broken" in paste(folder, failed).stdout
    (folder / "repaired").touch()
    again = paste(folder, resume)
    assert again.returncode == 0, again.stderr
    assert "8 judged; 16 results" in again.stdout


@pytest.mark.parametrize("name", IDS)
def test_a_sample_is_shown_by_the_command_that_is_printed_for_it(name: str, folder: Path) -> None:
    (folder / "repaired").touch()
    (folder / "worst").write_text(name, "utf-8")
    call_main(folder, "eval", "my eval.py", "--store", STORE, "--quiet")

    commands = find_commands(call_main(folder, "show", "my", "--store", STORE).stdout)

    assert len(commands) == 2
    for command in commands:
        shown = paste(folder, f"{command} --json" if " -- " not in command else command)
        assert shown.returncode == 0, shown.stderr
        if " -- " not in command:
            assert json.loads(shown.stdout)["sample"]["id"] == name


def test_commands_after_rescoring_work_for_both_runs(folder: Path) -> None:
    (folder / "repaired").touch()
    (folder / "worst").write_text("two words", "utf-8")
    call_main(folder, "eval", "my eval.py", "--store", STORE, "--quiet")

    scored = call_main(folder, "score", "my", "--scorer", "contains_answer", "--store", STORE)
    old = call_main(folder, "runs", "--store", STORE, "--json")
    first = json.loads(old.stdout)["runs"][1]["id"]
    shown = call_main(folder, "show", first, "--store", STORE)
    compared = call_main(folder, "compare", first, "latest", "--store", STORE)
    gated = call_main(folder, "gate", first, "--threshold", "1", "--store", STORE)
    # Whatever was typed means another run by now.
    call_main(folder, "score", first, "--scorer", "exact_answer", "--store", STORE, "--name", "my")

    for each in (scored, shown, compared, gated):
        commands = find_commands(each.stdout + each.stderr)
        assert commands
        for command in commands:
            done = paste(folder, command)
            assert done.returncode == 0, (command, done.stderr)
