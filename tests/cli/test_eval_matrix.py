"""Several agents and prompts: one run each, one comparison, and the worst exit status."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.eval_matrix import MatrixEntry, MatrixReport
from assay.cli.eval_variants import EvalVariant
from assay.errors import AccessDenied
from assay.runner import list_worst
from assay.store import Store

AGENTS = """
import os
from pathlib import Path

from assay.errors import AccessDenied

def count(sample):
    with open("asked.txt", "a") as file:
        file.write(sample.id + "\\n")
    return sample.messages[-1].text

def refuse(sample):
    raise AccessDenied("the key is refused", where="service")

def stumble(sample):
    if sample.id == "q3" and not Path("mended").exists():
        raise ValueError("stumbled")
    return sample.messages[-1].text
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    rows = [json.dumps({"id": f"q{n}", "question": str(n), "answer": str(n)}) for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "matrix_agents.py").write_text(AGENTS)
    (tmp_path / "plain.txt").write_text("{question}")
    (tmp_path / "wordy.txt").write_text("The question is {question}")
    return tmp_path


def evaluate(*words: str) -> int:
    return main(["eval", "rows.jsonl", "--scorer", "exact_answer", *words])


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_each_agent_is_run_with_each_prompt_and_compared_with_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    agents = ["--agent", "mock:echo", "--agent", "matrix_agents.py:count"]

    assert evaluate(*agents, "--prompt", "plain.txt", "--prompt", "wordy.txt") == 0

    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split() == ["score", "failed", "cost", "p", "conclusion"]
    assert [line.rsplit("  ", 1)[1].strip() for line in lines[1:5]] == [
        *("first", "worse"),
        *("not shown", "worse"),
    ]
    assert lines[4].startswith("matrix_age…unt wordy ")
    assert lines[5] == "p: against the first run, paired by sample, adjusted for 3 tests (Holm)"
    assert all(len(line) <= 80 for line in lines[:6])
    assert "3 of 4: matrix_agents.py:count plain\n" in captured.err
    with Store.open(create=False) as store:
        assert sorted(row.spec.name for row in store.runs()) == [
            "matrix_agents.py:count plain",
            "matrix_agents.py:count wordy",
            "mock:echo plain",
            "mock:echo wordy",
        ]


def test_a_wide_terminal_shows_the_differences_as_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    evaluate("--agent", "mock:echo", "--prompt", "plain.txt", "--prompt", "wordy.txt", "--quiet")

    head, _, second, *_ = capsys.readouterr().out.splitlines()
    assert "difference" in head
    assert "-1.000 [-1.000, " in second
    assert len(second) <= 120


def test_a_narrow_terminal_shows_whole_labels_and_the_conclusions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    evaluate("--agent", "mock:echo", "--prompt", "plain.txt", "--prompt", "wordy.txt", "--quiet")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["score", "p", "conclusion"]
    assert lines[2].startswith("mock:echo wordy  0.000 [")
    assert max(map(len, lines[: lines.index("runs")])) <= 60


def test_json_has_the_runs_and_their_comparisons(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "mock:echo", "--prompt", "plain.txt", "--prompt", "wordy.txt", "--json"]

    assert evaluate(*words, "--name", "nightly") == 0

    report = read_json(capsys)
    first, second = report["runs"]
    assert (first["agent"], first["prompt"], second["prompt"]) == ("mock:echo", "plain", "wordy")
    assert first["run"].startswith("nightly-mock-echo-plain-")
    found = report["comparisons"][second["run"]]
    assert (found["baseline"], found["conclusion"]) == (first["run"], "worse")
    assert found["adjusted_p"] == found["p_value"] == pytest.approx(2 * 0.5**12)
    assert found["difference"]["mean"] == -1.0


def test_a_run_that_stops_does_not_lose_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    agents = ("mock:echo", "matrix_agents.py:refuse", "matrix_agents.py:stumble")

    status = evaluate(*(word for each in agents for word in ("--agent", each)), "--quiet")

    captured = capsys.readouterr()
    assert status == 3
    rows = captured.out.splitlines()[1:4]
    assert rows[0].endswith("first")
    assert "1 of 12" in rows[2]
    assert "matrix_agents.py:refuse: " in captured.err
    assert "the key is refused" in captured.err
    assert "matrix_agents.py:stumble: reasons for failed samples" in captured.err


def test_resuming_completes_each_run_and_repeats_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--agent", "matrix_agents.py:count", "--agent", "matrix_agents.py:stumble", "--json"]
    assert evaluate(*words) == 3
    before = read_json(capsys)

    (folder / "mended").touch()
    resumed = main([*shlex.split(before["resume"])[1:], "--json"])

    after = read_json(capsys)
    assert resumed == 0
    assert before["resume"].endswith(" --resume")
    assert [run["run"] for run in after["runs"]] == [run["run"] for run in before["runs"]]
    assert len((folder / "asked.txt").read_text().split()) == 12
    assert after["runs"][1]["summary"]["judged_samples"] == 12


def test_resuming_starts_the_runs_that_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    first = ["--agent", "mock:echo", "--prompt", "plain.txt", "--json"]
    assert evaluate(*first) == 0
    before = read_json(capsys)

    assert evaluate(*first, "--prompt", "wordy.txt", "--resume") == 0

    runs = [run["run"] for run in read_json(capsys)["runs"]]
    assert runs[0] == before["run"]
    assert runs[1] != before["run"]


def test_resuming_takes_no_run_of_an_earlier_command(capsys: pytest.CaptureFixture[str]) -> None:
    """As after a second command that was interrupted before it started its second run."""
    first = ["--agent", "mock:echo", "--prompt", "plain.txt", "--json"]
    assert evaluate(*first, "--prompt", "wordy.txt") == 0
    earlier = read_json(capsys)
    assert evaluate(*first) == 0
    again = read_json(capsys)

    assert evaluate(*first, "--prompt", "wordy.txt", "--resume") == 0

    runs = [run["run"] for run in read_json(capsys)["runs"]]
    assert runs[0] == again["run"]
    assert runs[1] != earlier["runs"][1]["run"]


def build_entry(label: str, error: AccessDenied | None) -> MatrixEntry:
    variant = EvalVariant(label, None, None)  # type: ignore[arg-type]  # not read
    return MatrixEntry(variant, error=error)


def test_after_an_interruption_the_rest_is_not_started() -> None:
    denied = build_entry("a", AccessDenied("the key is refused\nfor good", where="openai:m"))
    report = MatrixReport("s", (denied, build_entry("b", None)), {}, "assay eval --resume", ())

    lines = report.lines()

    assert report.exit_status == 130
    assert lines[1:3] == ["a  stopped: openai:m: the key is refused", "b  not started"]
    assert report.plain()["runs"][1]["problem"] == "not started"


def test_a_metric_whose_low_values_are_good_is_compared_and_gated_by_its_direction(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "silent.py").write_text("def silent(sample):\n    return ''\n")
    (folder / "wordy.py").write_text(
        "from assay.scorers import RegisteredMetric\n"
        "words = RegisteredMetric('words', lambda s: float(len(s.response)), 'length',\n"
        "                         direction='min', range=(0.0, 50.0))\n"
    )

    def run_both(scorer: str) -> tuple[list[str], str]:
        words = ["--agent", "mock:echo", "--agent", "silent.py:silent", "--scorer", scorer]
        assert main(["eval", "rows.jsonl", *words, "--json"]) == 0
        told = read_json(capsys)
        (compared,) = told["comparisons"].values()
        return [each["run"] for each in told["runs"]], compared["conclusion"]

    (talks, silent), conclusion = run_both("empty_rate")
    assert conclusion == "worse"
    assert main(["gate", silent, "--baseline", talks]) == 1
    assert main(["gate", talks, "--baseline", silent]) == 0
    assert main(["gate", talks, "--threshold", "0.5"]) == 2
    assert "a threshold does not apply: low scores are good" in capsys.readouterr().err

    (talks, silent), conclusion = run_both("wordy.py:words")
    assert conclusion == "better"
    assert main(["compare", talks, silent]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("conclusion    better")
    assert "improvements (12)" in shown
    with Store.open(create=False) as store:
        assert store.run(talks).spec.config["bounds"] == [0.0, 50.0]
        assert [each.row.score for each in list_worst(store.run(talks), limit=2)] == [2.0, 2.0]


def test_the_table_states_that_low_scores_are_good(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agents = ["--agent", "mock:echo", "--agent", "matrix_agents.py:count"]

    assert main(["eval", "rows.jsonl", *agents, "--scorer", "empty_rate"]) == 0

    assert "\nscore: low is good\n" in capsys.readouterr().out
