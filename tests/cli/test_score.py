"""`assay score`: another scorer for recorded rollouts, without calls, as a new run."""

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from assay.cli import main
from assay.store import RunSpec, Store
from recorded_runs import conversation

SCORERS = """
import os

def answer(sample):
    with open("asked.txt", "a") as file:
        file.write(sample.id + "\\n")
    return "The answer is " + sample.messages[-1].text

def strict(sample):
    return float(sample.response == sample.ground_truth)

def lenient(sample):
    if os.path.exists("broken") and sample.id == "q1":
        raise ValueError("broken")
    return float(sample.ground_truth in sample.response)

def always_raise(sample):
    raise ValueError("never")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run of four samples that the strict scorer gave 0."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    rows = [json.dumps({"id": f"q{n}", "question": str(n), "answer": str(n)}) for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "score_scorers.py").write_text(SCORERS)
    scorer = ["--scorer", "score_scorers.py:strict"]
    words = ["eval", "rows.jsonl", "--agent", "score_scorers.py:answer", *scorer]
    assert main([*words, "--quiet", "--name", "old"]) == 0
    return tmp_path


def score(*words: str) -> int:
    return main(["score", "latest", "--scorer", "score_scorers.py:lenient", *words])


def test_recorded_rollouts_are_scored_again_as_a_new_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()

    assert score() == 0

    captured = capsys.readouterr()
    assert captured.out.startswith("score         1.000 [")
    with Store.open(create=False) as store:
        new, old = store.runs()
        assert new.spec.name == "old rescored"
        assert (new.totals.recorded, old.totals.recorded) == (4, 4)
        assert [row.score for row in store.run(old.id).results()] == [0.0] * 4
    assert captured.err == f"run {new.id}\n"
    assert f"  assay compare {old.id} {new.id}\n" in captured.out
    assert len((folder / "asked.txt").read_text().split()) == 4


def test_workers_score_each_rollout_once_and_resume(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken").touch()
    assert score("--workers", "2", "--quiet") == 3
    command = capsys.readouterr().err.splitlines()[-1].strip()
    assert "--workers 2" in command
    (folder / "broken").unlink()

    assert main(shlex.split(command)[1:]) == 0

    with Store.open(create=False) as store:
        new, old = store.runs()
        assert (new.spec.name, new.status) == ("old rescored", "completed")
        assert [row.sample_id for row in store.run(new.id).results()] == ["q0", "q1", "q2", "q3"]
        assert new.spec.config["rescored"] == old.id


def test_several_scorers_are_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    assert score("--scorer", "score_scorers.py:strict", "--max-samples", "2", "--json") == 0

    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["samples"] == 2
    assert summary["metrics"]["lenient"]["interval"]["mean"] == 1.0
    assert summary["metrics"]["strict"]["interval"]["mean"] == 0.0


def test_a_failed_sample_is_3_and_the_printed_command_scores_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken").touch()
    assert score("--name", "new", "--quiet") == 3
    command = capsys.readouterr().err.splitlines()[-1].strip()
    (folder / "broken").unlink()

    assert main(shlex.split(command)[1:]) == 0

    with Store.open(create=False) as store:
        new, _ = store.runs()
        assert (new.spec.name, new.totals.recorded, new.totals.failed) == ("new", 4, 0)


def test_a_scorer_that_always_raises_stops_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"id": f"q{n}", "question": "a", "answer": "a"}) for n in range(40)]
    Path("rows.jsonl").write_text("\n".join(rows))
    echo = ["--agent", "mock:echo", "--scorer", "exact_answer", "--quiet"]
    assert main(["eval", "rows.jsonl", *echo]) == 0
    capsys.readouterr()

    assert main(["score", "latest", "--scorer", "score_scorers.py:always_raise"]) == 3

    printed = capsys.readouterr().err
    assert "ValueError: never" in printed
    assert "Resume with:\n  assay score " in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["latest"], "the following arguments are required: --scorer"),
        (["none", "--scorer", "exact_answer"], "run 'none' does not exist"),
        (["latest", "--scorer", "exactly"], "--scorer: no metric is named 'exactly'"),
        (
            ["latest", "--scorer", "exact_answer", "--resume", "none"],
            "run 'none' does not exist",
        ),
    ],
)
def test_a_wrong_request_is_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *words]) == 2

    assert message in capsys.readouterr().err
    with Store.open(create=False) as store:
        assert len(store.runs()) == 1


def test_resuming_with_another_scorer_offers_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--agent", "score_scorers.py:answer", "--scorer", "score_scorers.py:lenient"]

    assert main(["eval", "rows.jsonl", *words, "--resume"]) == 2

    with Store.open(create=False) as store:
        (run,) = store.runs()
    hint = f"`assay score {run.id} --scorer FILE.py:function`"
    assert hint in capsys.readouterr().err


def test_an_incomplete_run_is_scored_with_a_note_of_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def write(store: Store) -> None:
        spec = RunSpec(
            id="part", name="part", config={}, config_fingerprint="f", dataset="d", total=4
        )
        run = store.start_run(spec)
        async with run.writer() as writer:
            await writer.record("q1", conversation("q1").model_copy(update={"ground_truth": "yes"}))
        run.finish("interrupted")

    with Store.open(folder / ".assay" / "assay.db") as store:
        asyncio.run(write(store))
    capsys.readouterr()

    assert main(["show", "part"]) == 0
    assert "status        interrupted, with 1 of 4 results\n" in capsys.readouterr().out
    assert main(["score", "part", "--scorer", "score_scorers.py:lenient", "--quiet"]) == 0
    assert "the run is interrupted, with 1 of 4 results, and the" in capsys.readouterr().err
