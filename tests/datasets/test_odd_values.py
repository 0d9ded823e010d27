"""Every value of a session replaced by values of other types: read, or skipped with a reason."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import from_eval_record, from_vertex, to_eval_record, to_vertex
from assay.sessions import SessionStream, read_opencode
from assay.sessions.atif_file import read_atif
from assay.sessions.claude_code import read_claude_code
from assay.sessions.codex import read_codex
from assay.types import Sample
from make import answered, asked, called, said, sample
from opencode_archives import (
    agent,
    recorded,
    session,
    text,
    tool,
    user,
    write_database,
    write_export,
    write_tree,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
ODD: tuple[Any, ...] = (5, "odd", None, ["odd"], {"odd": 1}, 10**400)
CELLS: tuple[Any, ...] = (5, "odd", None, b"\xff", "{}", "[1]", "null", 9e99)
Place = tuple[str | int, ...]
Stream = SessionStream


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    yield at
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*at, key))


def replaced(value: Any, at: Place, new: Any) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def mutations(value: Any, seen: set[Any]) -> Iterator[Any]:
    """The value with one thing in it replaced; of things that look alike only the first."""
    kind = str(value.get("type")) if isinstance(value, dict) else ""
    for at in places(value):
        shape = (kind, *("*" if isinstance(step, int) else step for step in at))
        if shape not in seen:
            # Deep inside, a third of the odd values each: all places of a kind see all of them.
            first = len(seen) % 3 if len(at) > 2 else None
            seen.add(shape)
            some = ODD if first is None else ODD[first::3]
            yield from (replaced(value, at, odd) for odd in some)


def check(stream: Stream) -> None:
    """Read all of it. A sample that cannot be written is refused by what writes it."""
    for each in stream:
        assert isinstance(each, Sample)
    reading = stream.reading
    found = reading.read + reading.empty + reading.inlined + reading.not_chosen
    assert found + len(reading.skipped) > 0 or reading.notes


ATIF = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s1",
    "agent": {"name": "harness", "version": "1", "tool_definitions": [{"name": "ls"}]},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Hi", "timestamp": "2026-03-01T09:00:00Z"},
        {
            "step_id": 2,
            "source": "agent",
            "message": [{"type": "text", "text": "Look"}, {"type": "image", "source": {}}],
            "model_name": "m",
            "reasoning_content": "hm",
            "tool_calls": [{"tool_call_id": "c", "function_name": "ls", "arguments": {"a": 1}}],
            "observation": {"results": [{"source_call_id": "c", "content": "a", "extra": {}}]},
            "metrics": {"prompt_tokens": 7, "cost_usd": 0.1, "logprobs": [0.1], "extra": {}},
            "extra": {"assay": {"details": {"id": "m1"}, "fields": {}}},
        },
    ],
    "subagent_trajectories": [{"schema_version": "ATIF-v1.8", "session_id": "s2", "steps": []}],
    "extra": {"assay": {"metadata": {"unknown_records": {}}, "trajectory": {}, "prompt": 1}},
}


def test_atif_documents(tmp_path: Path) -> None:
    path = tmp_path / "t.json"

    for odd in mutations(ATIF, set()):
        path.write_text(json.dumps(odd))
        check(read_atif(path))


TOKENS = {"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 1, "write": 0}}
RAN = tool(
    "bash",
    input={"command": "ls"},
    output="a.py",
    metadata={"exit": 0, "summary": [{"sessionID": "ses_2"}]},
    time={"start": 1, "end": 2, "compacted": 3},
)
OPENCODE = session(
    user(text("Hi", synthetic=False), {"type": "file", "url": "file:///a"}, system=["Be brief."]),
    agent(
        {"type": "reasoning", "text": "hm", "time": {"start": 1}},
        text("Look."),
        RAN,
        {"type": "step-finish", "reason": "stop", "cost": 0.1, "tokens": TOKENS},
        tokens=TOKENS,
        cost=0.1,
        error={"name": "APIError", "data": {"message": "no", "responseHeaders": {}}},
        parentID="msg_0",
    ),
    parentID="ses_0",
    revert={"messageID": "msg_9", "partID": "prt_9"},
    share={"url": "u", "secret": "s"},
)


def test_exported_opencode_sessions(tmp_path: Path) -> None:
    path = write_export(tmp_path / "ses_1.json", OPENCODE)

    for odd in mutations(json.loads(path.read_text()), set()):
        path.write_text(json.dumps(odd))
        check(read_opencode(path))


def test_trees_of_opencode(tmp_path: Path) -> None:
    root, seen = write_tree(tmp_path, [OPENCODE]), set[Any]()

    for path in sorted(root.rglob("*.json")):
        whole = path.read_text()
        for odd in mutations(json.loads(whole), seen):
            path.write_text(json.dumps(odd))
            check(read_opencode(root))
        path.write_text(whole)


def test_trees_of_the_oldest_opencode(tmp_path: Path) -> None:
    root, seen = recorded("0.1.174", tmp_path), set[Any]()

    for path in sorted(root.rglob("msg_*.json"))[1:2] + sorted(root.rglob("ses_*.json")):
        whole = path.read_text()
        for odd in mutations(json.loads(whole), seen):
            path.write_text(json.dumps(odd))
            check(read_opencode(root))
        path.write_text(whole)


def test_cells_of_opencode_s_database(tmp_path: Path) -> None:
    path = write_database(tmp_path / "opencode.db", [OPENCODE])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = 1")
    connection.execute("PRAGMA synchronous = 0")

    for table in ("session", "message", "part"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for column in columns:
            (row, before) = connection.execute(
                f'SELECT rowid, "{column}" FROM {table} ORDER BY rowid LIMIT 1'
            ).fetchone()
            update = f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE rowid = ?'
            for odd in CELLS:
                try:
                    connection.execute(update, (odd, row))
                except sqlite3.IntegrityError:
                    continue
                check(read_opencode(path))
            connection.execute(update, (before, row))
    connection.close()


@pytest.mark.parametrize(
    ("read", "pattern"),
    [(read_claude_code, "claude_code/*/*0b.jsonl"), (read_codex, "codex/**/rollout-*.jsonl")],
)
def test_lines_of_other_agents(
    read: Callable[[Path], SessionStream], pattern: str, tmp_path: Path
) -> None:
    whole = sorted(FIXTURES.glob(pattern))[0]
    records = [
        json.loads(line) for line in whole.read_text("utf-8").splitlines() if line[-1] == "}"
    ]
    path, seen = tmp_path / whole.name, set[Any]()

    for place, record in enumerate(records):
        before = "".join(json.dumps(each) + "\n" for each in records[:place])
        after = "".join(json.dumps(each) + "\n" for each in records[place + 1 :])
        for odd in mutations(record, seen):
            path.write_text(f"{before}{json.dumps(odd)}\n{after}")
            check(read(path))


@pytest.mark.parametrize(
    ("write", "read"), [(to_eval_record, from_eval_record), (to_vertex, from_vertex)]
)
def test_records_of_evaluations(
    write: Callable[[Sample], Any], read: Callable[[dict[str, Any]], Sample]
) -> None:
    talk = sample(
        asked("Hi"), said("Look.", called("ls", "c", path=".")), answered("a"), said("One file.")
    )
    row = json.loads(json.dumps(write(talk).value))

    for odd in mutations(row, set()):
        try:
            assert isinstance(read(odd), Sample)
        except WireError:
            continue
