"""`examples/agents`: agents of real frameworks, evaluated by the command a user would type."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "agents"
# The frameworks pin versions that clash with ours: `make tests` installs them apart.
FRAMEWORKS = ROOT / ".venv-agents" / "bin" / "python"
GLUE_LINES = 15

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    return tmp_path


@contextmanager
def start_server(folder: Path, *command: str) -> Iterator[str]:
    """Start a program that prints its port."""
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def evaluate(folder: Path, agent: str, python: str, **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(python, "-m", "assay", "eval", "questions.jsonl", "--agent", agent),
            *("--scorer", "scorer.py:has_number", "--json", "--quiet"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read_samples(folder: Path, run_id: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "assay", "export", "sample", run_id, "-o", "-", "--quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not FRAMEWORKS.exists(), reason="run `make .venv-agents/.installed`")
@pytest.mark.parametrize(
    "example", ["langgraph_app", "openai_agents", "pydantic_ai_agent", "smolagents_agent"]
)
def test_an_agent_of_a_framework_is_evaluated_as_it_is(example: str, folder: Path) -> None:
    script = str(ROOT / "tests" / "support" / "scripted_openai.py")
    with start_server(folder, sys.executable, script) as url:
        found = evaluate(
            folder,
            f"{example}.py:answer",
            str(FRAMEWORKS),
            OPENAI_BASE_URL=f"{url}/v1",
            OPENAI_API_KEY="scripted-key",
        )

    assert found["summary"]["score"]["interval"]["mean"] == 1.0
    for sample in read_samples(folder, found["run"]):
        messages = sample["trajectory"]["messages"]
        assert [message["role"] for message in messages[:3]] == ["user", "assistant", "tool"]
        assert messages[1]["tool_calls"][0]["name"] == "multiply"
        assert sample["trajectory"]["calls"][0]["usage"]["input_tokens"] == 40


@pytest.mark.skipif(not FRAMEWORKS.exists(), reason="run `make .venv-agents/.installed`")
def test_a_service_is_evaluated_where_it_runs(folder: Path) -> None:
    serve = (
        "import socket, uvicorn, service; s = socket.socket(); s.bind(('127.0.0.1', 0));"
        " s.listen(); print(s.getsockname()[1], flush=True);"
        " uvicorn.Server(uvicorn.Config(service.app, log_level='error')).run(sockets=[s])"
    )
    with start_server(folder, str(FRAMEWORKS), "-c", serve) as url:
        found = evaluate(folder, f"{url}/ask#answer=text", sys.executable)

    assert found["summary"]["score"]["interval"]["mean"] == 1.0


def test_a_shell_script_is_evaluated(folder: Path) -> None:
    found = evaluate(folder, "cmd:./agent.sh", sys.executable)

    assert found["summary"]["score"]["interval"]["mean"] == 1.0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*_a*.py")), ids=lambda path: path.stem)
def test_an_example_needs_few_lines(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith('"""')]

    # The tool, which the user has anyway, is not glue.
    own = "\n".join(lines).partition("def multiply")[2].partition("return a * b")[0]
    assert len(lines) - own.count("\n") - 2 <= GLUE_LINES
