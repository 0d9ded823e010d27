"""A folder that holds sessions of several agents and other things beside them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.sessions import read_opencode
from assay.sessions.atif_file import read_atif
from assay.sessions.claude_code import read_claude_code
from assay.sessions.codex import read_codex
from assay.sessions.inspect_logs import read_inspect
from opencode_archives import session, text, user, write_export

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "claude_code", tmp_path, dirs_exist_ok=True)
    shutil.copytree(FIXTURES / "codex", tmp_path, dirs_exist_ok=True)
    write_export(tmp_path / "ses_1.json", session(user(text("Hi"))))
    step = {"step_id": 1, "source": "user", "message": "Hi"}
    document = {"schema_version": "ATIF-v1.8", "session_id": "t1", "agent": {}, "steps": [step]}
    (tmp_path / "trajectory.json").write_text(json.dumps(document))
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "words.jsonl").write_text("not JSON\n5\n[]\nnull\n")
    (tmp_path / "wide.jsonl").write_bytes('{"a": 1}'.encode("utf-16"))
    (tmp_path / "bytes.json").write_bytes(bytes(range(256)))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.jsonl")
    return tmp_path


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("read", "least"),
    [
        (read_opencode, 1),
        (read_atif, 1),
        (read_claude_code, 2),
        (read_codex, 1),
        (read_inspect, 0),
    ],
)
def test_the_sessions_of_one_agent_are_read_out_of_a_mixture(
    read: Callable[[Path], Any], least: int, mixture: Path
) -> None:
    stream = read(mixture)

    assert len(list(stream)) >= least
    assert all(each.problem.message for each in stream.reading.skipped)
