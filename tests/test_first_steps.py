"""The first minutes of a new user, as the README has them. The benchmark measures their time."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import call_main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "first_steps.py"))


def test_the_readme_leads_to_a_result_an_own_agent_and_the_viewer(script: dict[str, Any]) -> None:
    first, agent, viewer = script["read_steps"](PAGE)

    assert list(first.files) == ["capitals.py"]
    assert first.commands == [["pip", "install", "assay-eval"], ["assay", "eval", "capitals.py"]]
    assert list(agent.files) == ["my_agent.py"]
    assert [command[:3] for command in agent.commands] == [["assay", "eval", "capitals.py"]]
    assert viewer.commands == [["pip", "install", "assay-eval[view]"], ["assay", "view"]]
    assert {step.name for step in (first, agent, viewer)} == set(script["BUDGETS_S"])


def test_the_first_result_takes_ten_lines_and_the_own_agent_five(script: dict[str, Any]) -> None:
    first, agent, _ = script["read_steps"](PAGE)

    def count(text: str) -> int:
        return len([line for line in text.splitlines() if line.strip()])

    assert count(first.files["capitals.py"]) == 10
    assert count(agent.files["my_agent.py"]) + len(agent.commands) <= 5


def test_the_five_jobs_have_short_blocks_and_a_link(script: dict[str, Any]) -> None:
    jobs = re.split(r"^### ", script["read_section"](PAGE, "Five jobs"), flags=re.MULTILINE)[1:]

    assert len(jobs) == 5
    for job in jobs:
        blocks = re.findall(r"^```\w+\n(.*?)^```$", job, re.MULTILINE | re.DOTALL)
        assert 0 < max(text.count("\n") for text in blocks) <= 12
        assert "](docs/" in job


def test_every_step_works_in_an_empty_folder(script: dict[str, Any], tmp_path: Path) -> None:
    scores: list[str] = []

    def run(words: list[str]) -> None:
        if words[0] == "assay" and words[1] != "view":
            ended = call_main(tmp_path, *words[1:])
            assert ended.returncode == 0, ended.stderr
            scores.extend(re.findall(r"^score +(\S+)", ended.stdout, re.MULTILINE))

    times = script["follow"](script["read_steps"](PAGE), tmp_path, run)

    assert scores == ["0.500", "1.000"]
    assert list(times) == ["first result", "own agent", "viewer open"]


def test_the_viewer_is_opened_and_stopped(script: dict[str, Any], tmp_path: Path) -> None:
    first, *_ = script["read_steps"](PAGE)
    view = [sys.executable, "-m", "assay", "view"]
    with pytest.raises(SystemExit, match="the viewer did not start"):
        script["open_viewer"](view, tmp_path)
    (tmp_path / "capitals.py").write_text(first.files["capitals.py"])
    call_main(tmp_path, "eval", "capitals.py")

    script["open_viewer"](view, tmp_path)


@pytest.mark.parametrize("page", ["# assay\n", PAGE.replace("`assay view`", "the viewer")])
def test_a_readme_without_a_step_is_refused(script: dict[str, Any], page: str) -> None:
    with pytest.raises(SystemExit, match="README"):
        script["read_steps"](page)
