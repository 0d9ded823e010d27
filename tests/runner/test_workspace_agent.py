"""Agents in a workspace: setup, work and check, and who is to blame for each."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.agents import RunContext
from assay.errors import ConfigError, DatasetError
from assay.runner import EvalConfig, evaluate, workspace_agent
from assay.scorers import check_passed
from assay.types import Boundary, Sample, Status


def run(rows: Any, folder: Path, **settings: Any) -> list[Sample]:
    async def scenario() -> list[Sample]:
        report = await evaluate(rows, EvalConfig(**settings), store=folder / "store.db")
        return sorted(report.samples, key=lambda sample: sample.id)

    return asyncio.run(scenario())


def write_answer(sample: Sample, context: RunContext) -> str:
    assert context.workspace is not None
    seen = sorted(path.name for path in context.workspace.iterdir())
    (context.workspace / "answer.txt").write_text(sample["question"].split()[-1])
    return f"{seen} {sorted(sample.input)}"


ROWS = [
    {"id": "a", "question": "Write four", "expected": "four", "files": {"x.txt": ""}},
    {"id": "b", "question": "Write five", "expected": "six", "check_files": {"hidden.txt": ""}},
]


def test_the_check_is_the_score_and_its_output_the_reason(tmp_path: Path) -> None:
    good, bad = run(
        ROWS,
        tmp_path,
        agent=write_answer,
        setup="touch ready",
        check="sh -c 'cat answer.txt; ls; grep -qx \"$1\" answer.txt' check {expected}",
    )

    assert (good.reward, bad.reward) == (1.0, 0.0)
    assert good.score is not None
    assert bad.score is not None
    assert good.score.reason == "the check passed: fouranswer.txt\nready\nx.txt"
    assert bad.score.reason == "the check exited with 1: fiveanswer.txt\nhidden.txt\nready"
    # The agent saw the files of the setup and of its row, but nothing of the check.
    assert good.response == "['ready', 'x.txt'] ['files', 'id', 'question']"
    assert bad.response == "['ready'] ['id', 'question']"


def test_a_command_works_in_a_copy_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "code.txt").write_text("old")

    (sample,) = run(
        [{"id": "a", "question": "new"}],
        tmp_path,
        agent="cmd:sh -c 'cat > code.txt'",
        workspace=tmp_path / "repository",
        check="grep -qx {question} code.txt",
    )

    assert sample.reward == 1.0
    assert (tmp_path / "repository" / "code.txt").read_text() == "old"


def test_a_scorer_may_use_the_check(tmp_path: Path) -> None:
    (sample,) = run(
        ROWS[:1],
        tmp_path,
        agent=write_answer,
        check="test -f answer.txt",
        score_fn=["check_passed", lambda sample: len(sample.response) > 0],
    )

    assert sample.score is not None
    assert sample.score.metrics["check_passed"].score == 1.0
    assert not check_passed(Sample(prompt="?")).is_score_valid


def test_a_failing_setup_is_not_the_agents_fault(tmp_path: Path) -> None:
    (sample,) = run(
        ROWS[:1],
        tmp_path,
        agent=write_answer,
        setup="sh -c 'echo broken >&2; exit 3'",
        check="true",
    )

    assert sample.status is Status.FAILED
    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.ENVIRONMENT
    assert "setup: the program exited with status 3; stderr: broken" in sample.failure.message


def test_a_setup_that_takes_all_of_the_time_is_not_the_agents_fault(tmp_path: Path) -> None:
    slow = "sleep 60"

    (waiting,) = run(ROWS[:1], tmp_path, agent="cmd:true", setup=slow, check="true", timeout_s=0.2)
    (working,) = run(ROWS[:1], tmp_path, agent=f"cmd:{slow}", check="true", timeout_s=2)

    assert waiting.failure is not None
    assert working.failure is not None
    assert waiting.failure.kind == working.failure.kind == "TimeoutError"
    assert waiting.failure.boundary is Boundary.ENVIRONMENT
    assert working.failure.boundary is Boundary.AGENT


def test_a_row_that_cannot_fill_a_command_fails_before_the_agent_runs(tmp_path: Path) -> None:
    called: list[str] = []

    def agent(sample: Sample, context: RunContext) -> str:
        called.append(sample.id)
        return ""

    (sample,) = run([{"id": "a", "question": "?"}], tmp_path, agent=agent, check="test {missing}")

    assert called == []
    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.DATASET


def test_a_bad_row_stops_the_run_before_anything_is_paid_for(tmp_path: Path) -> None:
    dataset = tmp_path / "rows.jsonl"
    dataset.write_text('{"question": "?"}\n{"question": "?", "files": {"../x": ""}}\n')

    with pytest.raises(DatasetError, match="leads outside the workspace"):
        run(dataset, tmp_path, agent=write_answer, check="true")

    assert not (tmp_path / "store.db").exists()


def test_an_agent_cannot_avoid_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_agent, "_CHECK_TIMEOUT_S", 0.2)

    def agent(sample: Sample, context: RunContext) -> str:
        assert context.workspace is not None
        script = context.workspace / "check.sh"
        script.unlink()
        if sample["question"] == "hang":
            script.write_text("#!/bin/sh\nsleep 600\n")
            script.chmod(0o755)
        return "done"

    rows = [
        {"id": name, "question": name, "files": {"check.sh": "#!/bin/sh\n"}}
        for name in ("hang", "remove")
    ]
    hanging, removed = run(rows, tmp_path, agent=agent, check="./check.sh")

    assert (hanging.reward, removed.reward) == (0.0, 0.0)
    assert hanging.score is not None
    assert removed.score is not None
    assert hanging.score.reason == "the check did not end within 0.2 s"
    assert (removed.score.reason or "").startswith("the check failed: the program './check.sh'")


def test_a_heavy_agent_runs_fewer_samples_at_once(tmp_path: Path) -> None:
    class Heavy:
        name = identity = "heavy"
        usual_concurrency = 2
        running = most = 0

        async def run(self, sample: Sample, context: RunContext) -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(20):
                await asyncio.sleep(0)
            self.running -= 1
            return "done"

    rows = [{"id": str(number), "question": "?"} for number in range(20)]
    usual, chosen = Heavy(), Heavy()
    run(rows, tmp_path, agent=usual, score_fn=lambda sample: 1.0)
    run(rows, tmp_path, agent=chosen, score_fn=lambda sample: 1.0, concurrency=7)

    assert usual.most == 2
    assert 2 < chosen.most <= 7


def test_the_settings_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")

    def fingerprint(**settings: Any) -> str:
        return EvalConfig(agent=write_answer, **{"check": "true", **settings}).fingerprint()

    plain, copied = fingerprint(), fingerprint(workspace=tmp_path)
    assert len({plain, copied, fingerprint(setup="true"), fingerprint(check="false")}) == 4
    (tmp_path / "a").write_text("2")
    assert fingerprint(workspace=tmp_path) != copied


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"endpoint": "mock:echo", "check": "true"},
            "`check` needs an agent that works in a folder",
        ),
        ({"agent": write_answer, "check": ""}, "the command is empty"),
        ({"agent": write_answer, "check": "true", "workspace": "missing"}, "is not a folder"),
        ({"agent": write_answer}, "neither `score_fn` nor `environment`"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        EvalConfig(**settings)


def test_a_coding_agent_without_a_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(ConfigError, match="the agent 'codex' needs a model"):
        EvalConfig(agent="codex", check="true")


def test_a_refused_row_of_a_list_is_found_before_any_sample_is_paid_for(tmp_path: Path) -> None:
    rows = [{"question": "Write four"}, {"question": "five", "files": {".git/config": ""}}]
    called: list[str] = []

    def answer(sample: Sample, context: RunContext) -> str:
        called.append(sample.id)
        return "four"

    with pytest.raises(DatasetError, match="part of a Git repository"):
        run(rows, tmp_path, agent=answer, check="true")
    assert not called
