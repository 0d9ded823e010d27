"""Replays as users run them: recorded by `assay runs record`, in `assay eval` and in pytest."""

import json
import stat
from pathlib import Path

import pytest

from commands import call_main, run_process
from evaluation_sessions import call_pytest, write_tests

AGENT = """
import os


def answer(sample, context):
    ask = os.environ.get("ASK", "Say it.")
    messages = [{"role": "system", "content": ask}, *context.messages]
    from assay.types import Message

    return context.client.ask([Message.model_validate(each) for each in messages]).message.text
"""
ROWS = "id,question,answer\nf,Paris,Paris\nb,Sucre,Sucre\n"
EVAL = (
    *("eval", "rows.csv", "--agent", "my_agent.py:answer", "--model", "mock:echo"),
    *("--scorer", "exact_answer", "--quiet"),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an evaluation that was run and recorded."""
    (tmp_path / "my_agent.py").write_text(AGENT, "utf-8")
    (tmp_path / "rows.csv").write_text(ROWS, "utf-8")
    assert call_main(tmp_path, *EVAL).returncode == 0
    assert call_main(tmp_path, "runs", "record", "latest", "-o", "calls.jsonl").returncode == 0
    return tmp_path


def test_a_recording_replaces_the_model(project: Path) -> None:
    assert stat.S_IMODE((project / "calls.jsonl").stat().st_mode) == 0o600

    ended = run_process(project, *EVAL, "--replay", "calls.jsonl")

    assert ended.returncode == 0, ended.stderr
    assert "replayed      2 calls of run rows-" in ended.stdout
    assert "cost          $0.0000" in ended.stdout
    shown = call_main(project, "show", "latest")
    assert "replayed      calls of run rows-" in shown.stdout
    as_json = json.loads(call_main(project, "show", "latest", "--json").stdout)
    assert as_json["replay"]["calls"] == 2
    assert as_json["run"]["config"]["replay"]["sha256"] == as_json["replay"]["sha256"]


def test_a_difference_is_shown_and_exits_3(project: Path) -> None:
    ended = call_main(project, *EVAL, "--replay", "calls.jsonl", ASK="Shout it.")

    assert ended.returncode == 3
    assert "2 failed (2 replay)" in ended.stderr
    lines = [line.strip() for line in ended.stderr.splitlines()]
    start = lines.index("--- recorded")
    assert lines[start : start + 5] == [
        *("--- recorded", "+++ now", "@@ -1 +1 @@", "-Say it.", "+Shout it.")
    ]
    assert "in messages[0] (system).content" in ended.stderr.replace("\n", " ")
    # The command that repeats the failed samples replays too.
    assert "--replay calls.jsonl --resume" in ended.stderr


def test_the_model_answers_what_is_missing_and_is_counted(project: Path) -> None:
    words = (*EVAL, "--replay", "latest", "--replay-missing", "live", "--json")

    report = json.loads(call_main(project, *words, ASK="Shout it.").stdout)

    assert report["exit_status"] == 0
    assert report["replay"]["missing"] == "live"
    assert (report["replay"]["replayed"], report["replay"]["live"]) == (0, 2)


def test_a_replayed_run_is_resumed_with_the_same_recording(project: Path) -> None:
    ended = call_main(project, *EVAL, "--replay", "latest", ASK="Shout it.")
    words = ended.stderr.splitlines()[-1].split()[1:]

    again = call_main(project, *words, "--quiet")

    assert ended.returncode == 3
    assert "latest" not in words
    assert again.returncode == 0, again.stderr
    assert "replayed      2 calls" in again.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("runs", "record", "latest", "-o", "calls.jsonl"), "already exists; pass --force"),
        (("runs", "record", "latest", "-o", "calls.json"), "is not a .jsonl file"),
        (
            ("runs", "record", "latest", "-o", "rows.csv/x.jsonl"),
            "the folder rows.csv does not exist",
        ),
        (("runs", "record", "nothing", "-o", "new.jsonl"), "nothing"),
        ((*EVAL, "--replay", "nowhere.jsonl"), "the recording cannot be read"),
        ((*EVAL, "--replay", "rows.csv"), "rows.csv"),
        ((*EVAL, "--replay-missing", "live"), "has no effect without `replay`"),
    ],
)
def test_wrong_requests_run_nothing(project: Path, words: tuple[str, ...], problem: str) -> None:
    before = (project / "calls.jsonl").read_bytes()

    ended = call_main(project, *words)

    assert ended.returncode == 2
    assert problem in ended.stderr
    assert (project / "calls.jsonl").read_bytes() == before
    assert not (project / "new.jsonl").exists()


EVALUATIONS = """
    @evaluation_test(
        [{"id": "a", "question": os.environ.get("QUESTION", "Paris")}],
        endpoint=Endpoint(provider="mock", model="echo"),
    )
    def test_echo(response):
        return bool(response)
"""


def test_pytest_replays_a_folder_of_recordings(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    assert call_pytest(tmp_path).status == 0
    (tmp_path / "recordings").mkdir()
    target = "recordings/test_echo.jsonl"
    assert call_main(tmp_path, "runs", "record", "latest", "-o", target).returncode == 0

    replayed = call_pytest(tmp_path, "--assay-replay=recordings", "--junitxml=junit.xml")
    changed = call_pytest(tmp_path, f"--assay-replay={target}", env={"QUESTION": "Sucre"})
    missing = call_pytest(tmp_path, "--assay-replay=elsewhere")

    assert replayed.status == 0, replayed.output
    assert "replayed from run test-echo-" in " ".join(replayed.output.split())
    assert 'name="assay_replayed_run"' in (tmp_path / "junit.xml").read_text("utf-8")
    assert changed.status == 1
    for line in ("    --- recorded", "    -Paris", "    +Sucre"):
        assert line in changed.output.splitlines()
    assert missing.status == 4
    assert "elsewhere does not exist; record it with" in missing.output


def test_a_test_replays_the_recording_beside_it(tmp_path: Path) -> None:
    write_tests(tmp_path, EVALUATIONS)
    assert call_pytest(tmp_path).status == 0
    assert call_main(tmp_path, "runs", "record", "latest", "-o", "own.jsonl").returncode == 0
    named = EVALUATIONS.replace('model="echo"),', 'model="echo"), replay="own.jsonl",')
    write_tests(tmp_path, named)

    assert "replayed from run" in " ".join(call_pytest(tmp_path).output.split())
    (tmp_path / "own.jsonl").unlink()
    gone = call_pytest(tmp_path)

    assert gone.status == 1
    assert "own.jsonl: the recording cannot be read" in gone.output
