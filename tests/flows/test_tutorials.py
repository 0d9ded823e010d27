"""What tutorials show and `tests/test_docs.py` cannot run: real frameworks and coding agents."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coding_agent_runs import find_program, run_commands
from started import Started

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
FRAMEWORKS = ROOT / ".venv-agents" / "bin" / "python"

pytestmark = pytest.mark.slow


def write_files(page: str, folder: Path) -> None:
    """Write the files of a tutorial."""
    text = (TUTORIALS / page).read_text("utf-8")
    for name, content in re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```', text, re.M | re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def read_commands(page: str) -> list[tuple[list[str], str]]:
    """The `assay` commands of a tutorial that only this file runs, with their output."""
    text = (TUTORIALS / page).read_text("utf-8")
    blocks = re.findall(
        r"^<!-- not run: tests/flows/.*?-->\n```console\n(.*?)^```", text, re.M | re.DOTALL
    )
    found = []
    for line, shown in re.findall(r"^\$ assay (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.M):
        found.append((shlex.split(line), shown))
    return found


def fits(shown: str, printed: str) -> bool:
    """Whether the output is the one shown, in which `...` is any text."""
    pattern = ".*".join(re.escape(part.strip()) for part in shown.split("...\n"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.skipif(not FRAMEWORKS.exists(), reason="run `make .venv-agents/.installed`")
def test_a_langgraph_app_is_compared_with_a_function(tmp_path: Path) -> None:
    write_files("your-agent.md", tmp_path)
    commands = read_commands("your-agent.md")
    script = ROOT / "tests" / "support" / "scripted_openai.py"

    with Started(script) as server:
        for words, shown in commands:
            done = subprocess.run(
                [str(FRAMEWORKS), "-m", "assay", *words],
                cwd=tmp_path,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "src"),
                    "OPENAI_BASE_URL": f"{server.url}/v1",
                    "OPENAI_API_KEY": "scripted-key",
                    "COLUMNS": "80",
                },
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            assert fits(shown, done.stdout), done.stdout

    assert [words[0] for words, _ in commands] == ["eval", "show"]


def test_claude_code_works_on_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_program("claude-code") is None:
        pytest.skip("claude-code is not installed: `make .npm-agents/.installed`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_files("coding-agent.md", tmp_path)
    subprocess.run([sys.executable, "make_tasks.py"], check=True)
    commands = read_commands("coding-agent.md")

    output = run_commands([f"$ assay {shlex.join(words)}" for words, _ in commands], tmp_path)

    assert [words[0] for words, _ in commands] == ["eval", "show"]
    # Piece by piece: which sample makes which call first differs from run to run.
    pieces = re.split(r"\n|\.\.\.", "".join(shown for _, shown in commands))
    assert [piece for piece in pieces if piece not in output] == []
    assert "max(price" in (tmp_path / "shop" / "cart.py").read_text()
