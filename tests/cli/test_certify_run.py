"""`assay certify run`: exit statuses, files, several agents, and the way to go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.certify.certified import CertificationResult
from assay.cli import main
from certifying import JUDGED, RIGHT, agent, golden, manifest, profile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    golden(tmp_path)
    return tmp_path


def run(*options: str) -> int:
    return main(["certify", "run", "agent.yaml", "--quiet", *options])


def judging(folder: Path, reply: str | None) -> str:
    """The file of a judge that always says the same."""
    graded = {"criteria": {"polite": {"reason": "so", "evidence": [], "score": 1.0}}}
    text = json.dumps(graded) if reply is None else reply
    endpoint = {"provider": "mock", "model": "fixed", "extra_params": {"text": text}}
    path = folder / "judge.json"
    path.write_text(json.dumps(endpoint))
    return path.name


def test_certified_exits_0_and_not_certified_exits_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(folder, profile())

    assert run("--runner", "certifying:right", "-o", "out") == 0
    told = capsys.readouterr()
    assert run("--runner", "certifying:wrong") == 1

    assert "verdict       PASSED" in told.out
    assert f"written       {Path('out/result.json')}" in told.out
    assert "verdict       FAILED" in capsys.readouterr().out
    written = CertificationResult.model_validate_json(Path("out/result.json").read_text())
    assert written.certified


def test_a_warning_exits_0_unless_told_otherwise(folder: Path) -> None:
    manifest(folder, profile({**RIGHT, "strict": False}))

    assert run("--runner", "certifying:wrong") == 0
    assert run("--runner", "certifying:wrong", "--fail-on-warn") == 1


def test_a_judge_that_cannot_be_read_exits_3_and_tells_how_to_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(folder, profile(JUDGED, evaluator_model="mock:fixed"))

    assert run("--judge", judging(folder, "garbage"), "--json") == 3

    captured = capsys.readouterr()
    told = json.loads(captured.out)
    (result,) = told["results"]
    assert (told["exit_status"], result["certified"]) == (3, False)
    go_on = captured.err.strip().splitlines()[-1]
    assert go_on.startswith("  assay certify run agent.yaml --agent helper --judge judge.json")
    assert go_on.endswith(f"--resume {result['result']['run']}")
    # Mended, the same judge can be asked again about the same answers.
    judging(folder, None)
    assert main([*go_on.split()[1:], "--quiet"]) == 0


def test_every_agent_of_a_manifest_is_certified_and_the_worst_counts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {"name": "empty_rate", "description": "Silence.", "threshold": 0.1}
    agents = {
        "good": agent(profile(silent), id="good"),
        "bad": agent(profile(RIGHT), id="bad"),
    }
    (folder / "agent.yaml").write_text(json.dumps({"definitions": agents}))

    assert run("-o", "out", "--json") == 1

    told = json.loads(capsys.readouterr().out)
    assert [each["exit_status"] for each in told["results"]] == [0, 1]
    assert sorted(path.parent.name for path in Path("out").rglob("result.json")) == ["bad", "good"]
    assert run("--resume", "latest") == 2


def test_resumed_agents_are_written_to_their_own_folders(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = profile(JUDGED, evaluator_model="mock:fixed")
    agents = {name: agent(judged, id=name) for name in ("first", "second")}
    (folder / "agent.yaml").write_text(json.dumps({"definitions": agents}))
    assert run("--judge", judging(folder, "garbage"), "-o", "out") == 3
    lines = capsys.readouterr().err.splitlines()
    judging(folder, None)

    for line in lines:
        if line.startswith("  assay certify run"):
            assert main([*line.split()[1:], "--quiet"]) == 0

    found = sorted(str(path) for path in Path("out").rglob("certificate.json"))
    assert found == ["out/first/certificate.json", "out/second/certificate.json"]


def test_a_server_out_of_reach_exits_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(folder, profile())

    assert run("--runner", "http://127.0.0.1:9/v1") == 3
    assert "the agent's model cannot be called" in capsys.readouterr().err


def test_whatever_an_agent_prints_is_no_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "chatty_agent.py").write_text(
        "print('imported')\ndef answer(sample):\n    print('called')\n    return 'x'\n"
    )
    manifest(folder, profile())

    assert run("--runner", "chatty_agent:answer", "--json") == 1

    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_status"] == 1
    assert "called" in captured.err


def test_a_failing_agents_words_do_not_act_on_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hostile_metric.py").write_text(
        "def score(sample):\n    raise ValueError('\\x1b[2J')\n"
    )
    evaluation: dict[str, Any] = profile({**RIGHT, "metric": "hostile_metric:score"})
    manifest(folder, evaluation)

    assert run() == 3

    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_files_that_cannot_be_written_exit_3_and_the_result_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(folder, profile())
    (folder / "out/certificate.json").mkdir(parents=True)

    assert run("--runner", "certifying:right", "-o", "out") == 3

    captured = capsys.readouterr()
    assert "verdict       PASSED" in captured.out
    assert "cannot be written" in captured.err
    assert "--resume" in captured.err


@pytest.mark.parametrize("how", ["raise asyncio.CancelledError", "raise KeyboardInterrupt"])
def test_an_async_agent_that_breaks_off_is_failed_not_obeyed(folder: Path, how: str) -> None:
    name = f"breaks_off_{len(how)}"
    (folder / f"{name}.py").write_text(f"import asyncio\nasync def answer(sample):\n    {how}\n")
    manifest(folder, profile())

    assert run("--runner", f"{name}:answer") == 1


def test_agents_that_are_not_certified_are_listed_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper, other = agent(profile()), agent(profile(), id="other")
    idle = agent(None, id="idle")
    definitions = {"helper": helper, "other": other, "idle": idle}
    (folder / "agent.yaml").write_text(json.dumps({"definitions": definitions}))
    options = ("--agent", "helper", "--runner", "certifying:right")

    assert run(*options, "-o", "out") == 0
    told = capsys.readouterr().out
    assert main(["certify", "plan", "agent.yaml", *options]) == 0
    planned = capsys.readouterr().out
    assert run(*options, "--json") == 0
    skipped = json.loads(capsys.readouterr().out)["skipped"]

    lines = ["skipped       other: only helper was selected", "skipped       idle: it has no"]
    assert all(line in told and line in planned for line in lines)
    assert [each["agent"] for each in skipped] == ["other", "idle"]
    certificate = json.loads(Path("out/certificate.json").read_text())
    assert set(certificate["predicate"]["certification"]["manifest"]["skipped"]) == {
        "other",
        "idle",
    }
