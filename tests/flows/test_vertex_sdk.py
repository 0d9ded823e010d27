"""Google's own SDK: it loads our rows whole, and its client is what `assay judge` asks with.

It takes seconds to load, so that one process does everything, and reaches nothing but a stand-in
on loopback.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.formats.vertex import to_vertex
from assay.sessions import read_opencode
from assay.sessions.claude_code import read_claude_code
from assay.sessions.codex import read_codex
from assay.store import Store
from assay.types import Message, Sample, ToolCall
from make import asked, said, sample
from vertex_server import TOKEN, Service, refused, scored, serving

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
FIXTURES = TESTS / "fixtures"
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    status: int
    stdout: str
    stderr: str
    left: list[str]
    """Hosts beyond this machine that were asked for."""


@dataclass(frozen=True)
class Session:
    """All that the process with the SDK did."""

    folder: Path
    rows: list[dict[str, Any]]
    checked: Done
    stopped: Done
    resumed: Done
    service: Service


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Rows are loaded; sessions are judged by a service that refuses, then by one that answers."""
    folder = tmp_path_factory.mktemp("vertex")
    rows = [to_vertex(sample).value for sample in answered_samples()]
    # The proof that the check can say no: an event in another shape is lost with a warning.
    other = [{"function_call": {"name": "f", "args": {}}, "turn": 1}]
    write(folder / "rows.jsonl", map(json.dumps, rows))
    write(folder / "lossy.jsonl", [json.dumps({**rows[0], "intermediate_events": other})])
    write(folder / "sessions.jsonl", map(Sample.to_json, sessions()))
    with (
        serving(lambda request: refused(403, "PERMISSION_DENIED")) as refusing,
        serving(answer) as service,
    ):
        check = {"module": "vertex_sdk_check", "words": ["rows.jsonl", "lossy.jsonl"], "env": {}}
        further = ("--resume", "latest", "--json", "--quiet", "-o", "judged.jsonl")
        commands = [judge(refusing, folder), judge(service, folder, *further), check]
        stopped, resumed, checked = run(commands, folder)
        yield Session(folder, rows, checked, stopped, resumed, service)


def write(path: Path, lines: Any) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def run(commands: list[dict[str, Any]], folder: Path) -> list[Done]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOOGLE_")}
    path = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "loopback_only.py")],
        input=json.dumps(commands),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**kept, "COLUMNS": "80", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return [Done(**each) for each in json.loads(done.stdout)]


def judge(service: Service, folder: Path, *words: str) -> dict[str, Any]:
    target = ("judge", "sessions.jsonl", "--rubric", "task_success,tool_use_quality")
    who = ("--backend", "vertex", "--project", "shop", "--endpoint", service.url)
    account = service.credentials(folder / f"account-{service.server_port}.json")
    env = {"GOOGLE_APPLICATION_CREDENTIALS": str(account)}
    return {"module": "assay", "words": [*target, *who, *words], "env": env}


def answer(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if "A riddle?" in json.dumps(request):
        return scored(0.0, error={"code": 3, "message": "cannot be judged"})
    success = spec_name(request).startswith("multi")
    return scored(1.0, True, True) if success else scored(0.5, True, False)


def spec_name(request: dict[str, Any]) -> str:
    return str(request["metrics"][0]["predefined_metric_spec"]["metric_spec_name"])


def sessions() -> list[Sample]:
    """With a tool, without, one that cannot be judged, one that was never answered."""
    call = ToolCall(id="c1", name="lookup", arguments={"order": 7})
    used = Message(role="assistant", tool_calls=[call])
    told = Message(role="tool", name="lookup", tool_call_id="c1", content="Bremen")
    return [
        sample(asked("Where is order 7?"), used, told, said("In Bremen."), id="tool"),
        sample(asked("What is 2+2?"), said("It is 4."), id="plain"),
        sample(asked("A riddle?"), said("No idea."), id="riddle"),
        sample(asked("Anybody there?"), id="silent"),
    ]


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


def test_the_sdk_keeps_every_tool_call_of_every_turn(session: Session) -> None:
    found, lossy = json.loads(session.checked.stdout.splitlines()[-1])

    rows = session.rows
    assert (found["schema"], found["warnings"], found["round_trip"]) == ("flatten", [], True)
    assert found["same_as_sent"] == [True] * len(rows)
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
    assert lossy["cases"][0]["events"] == []
    assert any("intermediate event" in text for text in lossy["warnings"])


def kind(part: dict[str, Any]) -> str:
    if "text" in part:
        return "thought" if part.get("thought") else "text"
    return "call" if "function_call" in part else "response"


def test_a_refused_project_ends_the_judging_and_says_how_to_go_on(session: Session) -> None:
    stopped = session.stopped

    assert stopped.status == 3
    assert "403 PERMISSION_DENIED" in stopped.stderr
    assert "assay judge sessions.jsonl --rubric task_success,tool_use_quality" in stopped.stderr
    assert re.search(r"--project shop --resume judge-\S+\n", stopped.stderr)
    assert "Traceback" not in stopped.stderr


def test_what_the_service_cannot_judge_is_told_and_is_no_zero(session: Session) -> None:
    done = session.resumed

    told = json.loads(done.stdout)
    assert (done.status, told["judged"], told["unreadable"], told["failed"]) == (3, 2, 2, 0)
    assert told["verdicts"] == {"rubrics": 6, "not_met": 1}
    assert told["summary"]["score"]["interval"]["mean"] == 0.875
    lines = (session.folder / "judged.jsonl").read_text().splitlines()
    judged = {each.id: each.score for each in map(Sample.from_json, lines)}
    rewards = {name: result and result.reward for name, result in judged.items()}
    assert rewards == {"tool": 0.75, "plain": 1.0, "riddle": None, "silent": None}
    # Not a word of the SDK's own: no bar, no traceback, no warning.
    assert all(line.startswith("not judged: ") for line in done.stderr.splitlines())
    with Store.open(session.folder / ".assay" / "assay.db", create=False) as store:
        assert len(store.runs()) == 1


def test_the_service_is_sent_every_tool_call_and_only_what_fits_a_metric(session: Session) -> None:
    service = session.service

    # Two metrics of the session with a tool, one of the two without; the silent one is not sent.
    assert sorted(map(spec_name, service.asked)) == [
        *["multi_turn_task_success_v1"] * 3,
        "tool_use_quality_v1",
    ]
    assert set(service.paths) == {"/v1beta1/projects/shop/locations/us-central1/:evaluateInstances"}
    sent = next(each for each in service.asked if spec_name(each).startswith("tool_use"))
    events = sent["instance"]["agent_eval_data"]["turns"][0]["events"]
    parts = [part for event in events for part in event["content"]["parts"]]
    assert [part["function_call"]["args"] for part in parts if "function_call" in part] == [
        {"order": 7}
    ]


def test_nothing_leaves_the_machine_and_the_token_is_nowhere(session: Session) -> None:
    assert session.resumed.left == []
    assert session.service.tokens == {f"Bearer {TOKEN}"}
    for done in (session.stopped, session.resumed):
        assert TOKEN not in done.stdout + done.stderr
    assert TOKEN.encode() not in (session.folder / ".assay" / "assay.db").read_bytes()
