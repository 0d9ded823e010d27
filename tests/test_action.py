"""The GitHub Action: its steps, run in bash beside a stand-in for GitHub's API."""

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import build_environment

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")

EVALUATION = """
from assay import EvalConfig

dataset = [{"id": f"n{n}", "question": f"```{n}```", "answer": str(n)} for n in range(12)]
config = EvalConfig(agent="agents.py:right", score_fn=lambda s: s.response == s.ground_truth)
"""
AGENTS = """
def right(sample):
    return sample["question"].strip("`")


def wrong(sample):
    return "0"
"""
TEST = """
from assay import evaluation_test


@evaluation_test("numbers.jsonl", agent="agents.py:AGENT", threshold=0.9)
def test_numbers(response, ground_truth):
    return response == ground_truth
"""


class Runner:
    """A machine of GitHub Actions, as far as the action uses one."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder = folder
        self.outputs: dict[str, str] = {}
        self._temporary = folder / "temporary"
        self._temporary.mkdir()
        (folder / "event.json").write_text('{"pull_request": {"number": 7}}')
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": api,
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_OUTPUT": str(self._temporary / "output"),
            "GITHUB_REPOSITORY": "acme/shop",
            "GITHUB_STEP_SUMMARY": str(self._temporary / "summary.md"),
            "RUNNER_TEMP": str(self._temporary),
        }

    @property
    def summary(self) -> str:
        return (self._temporary / "summary.md").read_text("utf-8")

    def prepend_path(self, folder: Path) -> None:
        self._environment["PATH"] = f"{folder}{os.pathsep}{self._environment['PATH']}"

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the action with these inputs, the others at their defaults."""
        step = STEPS[name]
        variables = {
            key: EXPRESSION.sub(lambda match: self._resolve(match[1], inputs), value)
            for key, value in step.get("env", {}).items()
        }
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env=build_environment(**self._environment, **variables),
            capture_output=True,
            encoding="utf-8",
        )
        written = self._temporary / "output"
        if written.exists():
            pairs = (line.partition("=") for line in written.read_text("utf-8").splitlines())
            self.outputs = {key: value for key, _, value in pairs}
        return ended

    def _resolve(self, expression: str, inputs: dict[str, str]) -> str:
        scope, _, name = expression.partition(".")
        if scope == "inputs":
            default: str = ACTION["inputs"][name]["default"]
            return inputs.get(name.replace("-", "_"), default)
        assert scope == "steps"
        return self.outputs[name.removeprefix("evaluate.outputs.")]


class Api:
    """GitHub's comments of one pull request."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.status = 200
        self.location: str | None = None
        self.missing_bytes = 0
        self.asked: list[tuple[str, str, str | None]] = []
        self.url = ""

    def answer(self, method: str, path: str, content: Any) -> Any:
        if method == "GET":
            page = int(re.search(r"[?&]page=(\d+)", path)[1])  # type: ignore[index]  # always there
            return self.comments[100 * (page - 1) : 100 * page]
        if method == "POST":
            new = {"id": len(self.comments), "user": {"type": "Bot"}, **content}
            self.comments.append(new)
            return new
        (known,) = [each for each in self.comments if each["id"] == int(path.rpartition("/")[2])]
        known.update(content)
        return known


@pytest.fixture
def api() -> Iterator[Api]:
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            state.asked.append((self.command, self.path, self.headers.get("Authorization")))
            self.send_response(state.status)
            if state.location is not None:
                self.send_header("Location", state.location)
            body = b"{}"
            if state.status == 200:
                body = json.dumps(state.answer(self.command, self.path, content)).encode()
            self.send_header("Content-Length", str(len(body) + state.missing_bytes))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def runner(tmp_path: Path, api: Api) -> Runner:
    (tmp_path / "numbers.py").write_text(EVALUATION)
    (tmp_path / "agents.py").write_text(AGENTS)
    rows = ({"id": f"n{n}", "question": str(n), "answer": str(n)} for n in range(3))
    (tmp_path / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Runner(tmp_path, api.url)


def comment(runner: Runner, text: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    (runner.folder / "comment.md").write_text(text)
    runner.outputs["comment"] = str(runner.folder / "comment.md")
    return runner.run("Comment on the pull request", github_token="t0ken", **inputs)


def test_no_step_interpolates_an_expression_into_its_script() -> None:
    scripts = [step["run"] for step in STEPS.values() if "run" in step]

    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_only_actions_of_github_are_used_and_every_input_is_documented() -> None:
    used = [step["uses"] for step in STEPS.values() if "uses" in step]
    text = (ROOT / "action.yml").read_text("utf-8")
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")

    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []
    assert [name for name in ACTION["inputs"] if f"inputs.{name}" not in text] == []
    assert [name for name in ACTION["inputs"] if f"| `{name}` |" not in page] == []
    assert all(each["description"] for each in ACTION["inputs"].values())


def test_an_evaluation_is_reported_and_commented(runner: Runner, api: Api) -> None:
    evaluated = runner.run("Evaluate", eval="numbers.py", gate="--threshold 0.9")

    assert evaluated.returncode == 0, evaluated.stderr
    assert runner.outputs["status"] == "0"
    assert "<html" in (runner.folder / runner.outputs["report"]).read_text("utf-8")
    assert "score         1.000" in runner.summary
    assert "gate          passed" in runner.summary
    runner.run("Comment on the pull request", github_token="t0ken")
    assert [each["body"] for each in api.comments] == [
        f"{api.comments[0]['body'].partition(chr(10))[0]}\n## Evaluations\n\n{runner.summary}"
    ]
    assert runner.run("Pass or fail").returncode == 0


@pytest.mark.slow
def test_an_evaluation_that_is_worse_than_its_bundle_fails_the_job(runner: Runner) -> None:
    for words in (["eval", "numbers.py"], ["bundle", "latest", "-o", "base.tar.gz"]):
        made = [sys.executable, "-m", "assay", *words]
        subprocess.run(made, cwd=runner.folder, check=True, capture_output=True)

    runner.run("Evaluate", eval="numbers.py --agent agents.py:wrong", baseline="base.tar.gz")

    assert runner.outputs["status"] == "1"
    assert "conclusion    worse" in runner.summary
    assert "gate          failed" in runner.summary
    # The questions have fences of their own.
    assert runner.summary.startswith("```text\n")
    assert "\n````text\n" in runner.summary
    assert runner.run("Pass or fail").returncode == 1


def test_a_gate_that_cannot_be_applied_fails_the_job(runner: Runner) -> None:
    runner.run("Evaluate", eval="numbers.py --json", gate="--threshold 0.9")

    assert runner.outputs["status"] == "2"
    assert "`gate` were not applied" in runner.summary
    assert runner.run("Pass or fail").returncode == 2


@pytest.mark.parametrize("report", ["evaluations.html", "folder", ""])
def test_only_a_report_of_these_evaluations_is_uploaded(runner: Runner, report: str) -> None:
    """An earlier step may have left one, and a folder would be uploaded with all of its files."""
    (runner.folder / "evaluations.html").write_text("earlier")
    (runner.folder / "folder").mkdir()

    runner.run("Evaluate", eval="missing.py", report=report)

    assert runner.outputs["status"] == "2"
    assert runner.outputs["report"] == ""


def test_an_evaluation_that_a_signal_ends_is_no_pass(
    runner: Runner,
) -> None:
    """Such as a library that crashes when the process ends, after the report is printed."""
    (runner.folder / "assay").write_text(
        '#!/bin/sh\necho "run           r-1"\n[ "$1" = eval ] && kill -SEGV $$\nexit 0\n'
    )
    (runner.folder / "assay").chmod(0o755)
    runner.prepend_path(runner.folder)

    runner.run("Evaluate", eval="numbers.py", gate="--threshold 0.9")

    assert runner.outputs["status"] == "139"


def test_several_agents_are_compared(runner: Runner) -> None:
    runner.run("Evaluate", eval="numbers.py --agent agents.py:right --agent agents.py:wrong")

    assert runner.outputs["status"] == "0"
    assert "worse" in runner.summary
    report = (runner.folder / runner.outputs["report"]).read_text("utf-8")
    assert "agents.py:right" in report
    assert "agents.py:wrong" in report


@pytest.mark.parametrize(("agent", "status"), [("right", "0"), ("wrong", "1")])
def test_pytest_gives_the_table_of_its_tests(runner: Runner, agent: str, status: str) -> None:
    (runner.folder / "test_numbers.py").write_text(TEST.replace("AGENT", agent))

    runner.run("Evaluate", pytest="test_numbers.py -q -p no:cacheprovider")

    assert runner.outputs["status"] == status
    assert "| test | score |" in runner.summary
    assert (runner.folder / "evaluations.html").exists()


def test_files_of_pytest_are_named_from_the_repository(runner: Runner) -> None:
    """A folder with settings of its own is the root folder of pytest."""
    evals = runner.folder / "evals"
    evals.mkdir()
    (evals / "pytest.ini").write_text("[pytest]\npythonpath = ..\n")
    (evals / "test_numbers.py").write_text(TEST.replace("AGENT", "right"))
    inputs = {"pytest": "evals -q -p no:cacheprovider", "baseline": "baseline.json"}
    update = f"{inputs['pytest']} --assay-update-baseline"
    runner.run("Evaluate", pytest=update, baseline="baseline.json")
    (evals / "test_numbers.py").write_text(TEST.replace("AGENT", "wrong"))

    runner.run("Evaluate", **inputs)

    assert runner.outputs["status"] == "1"
    assert (runner.folder / "baseline.json").exists()
    assert runner.outputs["report"] == "evaluations.html"


def test_pytest_without_an_evaluation_still_comments(runner: Runner) -> None:
    runner.run("Evaluate", pytest="missing.py -q -p no:cacheprovider")

    assert runner.outputs["status"] == "4"
    assert runner.summary == "No evaluation ran: pytest ended with 4.\n"


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({}, "set one of the inputs"),
        ({"pytest": "evals", "eval": "evals.py"}, "set one of the inputs"),
        ({"pytest": "evals", "gate": "--threshold 1"}, "`gate` is for `eval`"),
        ({"eval": "evals.py", "report": "a\nstatus=0"}, "not the path of a file"),
        ({"eval": "evals.py", "gate": "--threshold '1"}, "`gate` cannot be split into words: No"),
        ({"eval": "evals.py", "baseline": "no.tar.gz"}, "no.tar.gz is not a bundle of one run"),
    ],
)
def test_wrong_inputs_fail_the_step(runner: Runner, inputs: dict[str, str], problem: str) -> None:
    ended = runner.run("Evaluate", **inputs)

    assert ended.returncode == 1
    assert problem in ended.stderr
    assert runner.outputs == {}


def test_inputs_are_words_and_no_script(runner: Runner) -> None:
    runner.run("Evaluate", eval="$(touch hacked) ; touch hacked", baseline="`touch hacked`")
    assert runner.outputs["status"] == "2"
    assert "assay eval ended with status 2; the log has the reason" in runner.summary
    comment(runner, "text", title='"; touch hacked; $(touch hacked)')

    assert not (runner.folder / "hacked").exists()


def test_a_later_run_updates_its_comment(runner: Runner, api: Api) -> None:
    comment(runner, "first")
    comment(runner, "second")
    comment(runner, "third", title="Nightly")

    assert [each["body"].splitlines()[1:] for each in api.comments] == [
        ["## Evaluations", "", "second"],
        ["## Nightly", "", "third"],
    ]
    assert {key for _, _, key in api.asked} == {"Bearer t0ken"}


def test_an_earlier_comment_is_found_beyond_the_first_page(runner: Runner, api: Api) -> None:
    comment(runner, "first")
    api.comments += [{"id": n, "user": {"type": "User"}, "body": "chat"} for n in range(1, 150)]
    api.comments.reverse()

    comment(runner, "second")

    assert len(api.comments) == 150
    assert api.comments[-1]["body"].endswith("second")


def test_comments_of_deleted_accounts_are_passed_over(runner: Runner, api: Api) -> None:
    api.comments.append({"id": 0, "user": None, "body": None})

    ended = comment(runner, "text")

    assert ended.returncode == 0, ended.stderr
    assert api.comments[-1]["body"].endswith("text")


def test_an_answer_that_breaks_off_is_a_warning(runner: Runner, api: Api) -> None:
    api.missing_bytes = 10

    ended = comment(runner, "text")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("::warning::the comment was not written: ")


def test_the_comment_of_a_person_is_not_overwritten(runner: Runner, api: Api) -> None:
    comment(runner, "first")
    api.comments[0]["user"] = {"type": "User"}

    comment(runner, "second")

    assert [each["body"].splitlines()[-1] for each in api.comments] == ["first", "second"]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_comment_that_is_refused_is_a_warning(runner: Runner, api: Api, status: int) -> None:
    api.status = status

    ended = comment(runner, "text")

    assert ended.returncode == 0
    assert ended.stdout.startswith("::warning::the comment was not written: ")
    assert ("pull-requests: write" in ended.stdout) == (status != 500)
    assert "t0ken" not in ended.stdout + ended.stderr


def test_the_token_does_not_follow_a_redirect(runner: Runner, api: Api) -> None:
    api.status, api.location = 302, f"{api.url}/elsewhere"

    ended = comment(runner, "text")

    assert ended.stdout.startswith("::warning::")
    assert len(api.asked) == 1


def test_a_text_that_is_too_long_is_cut_and_reported() -> None:
    compose = runpy.run_path(str(ROOT / "action" / "comment.py"))["compose"]

    body = compose("Evaluations", "x" * 100_000)

    assert len(body) < 65_536
    assert "too long for a comment" in body
