"""Evaluations in a real notebook: a bar that moves while samples run, and a page for the report."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / ".venv-agents" / "bin" / "python"

CELLS = [
    "import sys\n"
    "from assay import EvalConfig, evaluate, evaluate_sync\n"
    "from assay.runner import show_progress\n"
    "rows = [{'question': f'{n}?', 'answer': 'yes'} for n in range(3)]\n"
    "config = EvalConfig(agent=lambda sample: 'yes', score_fn='exact_answer')",
    "report = evaluate_sync(rows, config, store='a.db', watch=show_progress(sys.stderr))",
    "report = await evaluate(rows, config, store='b.db', watch=show_progress(sys.stderr))",
    "report",
]
DRIVER = """
import json, sys
import nbformat
from nbclient import NotebookClient

class Client(NotebookClient):
    shown = []

    def process_message(self, message, cell, cell_index):
        kind, data = message["msg_type"], message["content"].get("data", {})
        if kind in ("display_data", "update_display_data", "execute_result"):
            self.shown.append([cell_index, kind, data.get("text/html", "")])
        return super().process_message(message, cell, cell_index)

cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
Client(nbformat.v4.new_notebook(cells=cells), timeout=120, kernel_name="python3").execute()
print(json.dumps(Client.shown))
"""


@pytest.mark.skipif(not NOTEBOOKS.exists(), reason="run `make .venv-agents/.installed`")
def test_a_notebook_shows_a_bar_that_moves_and_the_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [NOTEBOOKS, "-c", DRIVER],
        input=json.dumps(CELLS),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    for cell in (1, 2):
        bar = [(kind, html) for at, kind, html in shown if at == cell]
        assert bar[0][0] == "display_data"
        assert {kind for kind, _ in bar[1:]} == {"update_display_data"}
        assert bar[0][1].startswith('<progress value="1" max="3"></progress> 1/3, ')
        assert bar[-1][1].startswith('<progress value="3" max="3"></progress> 3/3, ')
    at, kind, html = shown[-1]
    assert (at, kind) == (3, "execute_result")
    assert "<svg" in html
