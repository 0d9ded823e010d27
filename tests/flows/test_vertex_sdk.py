"""Rows for Vertex, loaded by Google's own SDK.

The SDK is heavy and pins what others need newer, so it lives in a virtual environment of its own:
`.venv-vertex` beside this package, or the folder that ASSAY_VERTEX_VENV names. With
ASSAY_TEST_VERTEX=1 it is made when it is missing; without either these tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.models import Sample
from assay.models.wire.vertex import to_vertex
from assay.sources.claude_code import read_claude_code
from assay.sources.codex import read_codex
from assay.sources.opencode import read_opencode

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
PACKAGE = "google-cloud-aiplatform[evaluation]==2.6.0"


@pytest.fixture(scope="module")
def sdk_python() -> Path:
    """The interpreter of the virtual environment with the SDK."""
    place = Path(os.environ.get("ASSAY_VERTEX_VENV") or ROOT / ".venv-vertex")
    python = place / "bin" / "python"
    if not python.exists():
        if os.environ.get("ASSAY_TEST_VERTEX") != "1":
            pytest.skip("needs Vertex's SDK; ASSAY_TEST_VERTEX=1 installs it (870 MB)")
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True, timeout=1800)
    return python


def loaded(rows: list[dict[str, Any]], python: Path, folder: Path) -> dict[str, Any]:
    """What the SDK makes of rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    done = subprocess.run(
        [python, ROOT / "tests" / "vertex_sdk_check.py", path],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def answered_samples() -> list[Sample]:
    streams = (
        read_opencode(FIXTURES / "opencode" / "1.18.33"),
        read_claude_code(FIXTURES / "claude_code"),
        read_codex(FIXTURES / "codex"),
    )
    return [
        sample
        for stream in streams
        for sample in stream
        if sample.messages and sample.messages[-1].role != "user"
    ]


def test_the_sdk_keeps_every_tool_call_of_every_turn(sdk_python: Path, tmp_path: Path) -> None:
    samples = answered_samples()
    rows = [to_vertex(sample).value for sample in samples]

    found = loaded(rows, sdk_python, tmp_path)

    assert (found["schema"], found["warnings"], found["round_trip"]) == ("flatten", [], True)
    assert len(found["cases"]) == len(rows) > 8
    for row, case in zip(rows, found["cases"], strict=True):
        assert case["session_id"] == row["session_id"]
        assert case["prompt"] == row["prompt"]["parts"][0]["text"]
        assert case["responses"] == [row["response"]["parts"][0]["text"]]
        assert case["reference"] is None
        assert (case["instruction"] or "") == row["instruction"]
        assert len(case["events"]) == len(row["intermediate_events"])
        assert case["turns"] == [
            [[event["author"], *map(kind, event["content"]["parts"])] for event in turn["events"]]
            for turn in row["agent_data"]["turns"]
        ]
    assert sum("call" in event for case in found["cases"] for t in case["turns"] for event in t) > 9


def kind(part: dict[str, Any]) -> str:
    if "text" in part:
        return "thought" if part.get("thought") else "text"
    return "call" if "function_call" in part else "response"


def test_the_check_sees_what_the_sdk_drops(sdk_python: Path, tmp_path: Path) -> None:
    """The proof that the check can say no: an event in another shape is lost with a warning."""
    row = to_vertex(answered_samples()[0]).value
    row["intermediate_events"] = [{"function_call": {"name": "f", "args": {}}, "turn": 1}]

    found = loaded([row], sdk_python, tmp_path)

    assert found["cases"][0]["events"] == []
    assert any("intermediate event" in text for text in found["warnings"])
