"""OpenCode sessions for tests: the recorded ones, and made ones in every layout."""

import json
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.sessions.opencode.archive import StoredMessage, StoredSession

RECORDED = Path(__file__).parents[1] / "fixtures" / "opencode"
VERSIONS = ("0.1.174", "0.5.29", "1.1.65", "1.18.33")
NOW = 1_794_766_000_000


def recorded(version: str, into: Path) -> Path:
    """A copy of the recorded data folder, so that nothing a test does reaches the original."""
    folder = into / version
    shutil.copytree(RECORDED / version, folder)
    return folder


def exported(version: str) -> dict[str, dict[str, Any]]:
    """What `opencode export` printed for each session of a version."""
    files = sorted((RECORDED / version / "export").glob("ses_*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in files}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def tool(name: str, status: str = "completed", **state: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": name, "callID": "call_1", "state": {"status": status, **state}}


def user(*parts: dict[str, Any], **info: Any) -> StoredMessage:
    return StoredMessage({"role": "user", **info}, list(parts))


def agent(*parts: dict[str, Any], **info: Any) -> StoredMessage:
    given = {"role": "assistant", "modelID": "m", "providerID": "p", "finish": "stop", **info}
    return StoredMessage(given, [{"type": "step-start"}, *parts])


def session(*messages: StoredMessage, id: str = "ses_1", **info: Any) -> StoredSession:
    """A session whose messages and parts have ids and times in the order given."""
    built = []
    for place, message in enumerate(messages):
        own = {
            "id": f"msg_{place}",
            "sessionID": id,
            "time": {"created": NOW + place * 1000, "completed": NOW + place * 1000 + 500},
            **message.info,
        }
        if own["role"] == "user":
            own["time"] = {"created": own["time"]["created"]}
        parts = [
            {"id": f"prt_{place}_{n}", "sessionID": id, "messageID": own["id"], **part}
            for n, part in enumerate(message.parts)
        ]
        built.append(StoredMessage(own, parts))
    described = {
        "id": id,
        "title": "A session",
        "version": "1.18.33",
        "projectID": "global",
        "directory": "/srv/app",
        "time": {"created": NOW, "updated": NOW + 60_000},
        **info,
    }
    return StoredSession(described, built)


def write_tree(root: Path, sessions: Sequence[StoredSession]) -> Path:
    """A data folder of OpenCode 0.6 to 1.1."""
    for each in sessions:
        name = f"{each.info['id']}.json"
        _write(root / "storage/session" / str(each.info["projectID"]) / name, each.info)
        for message in each.messages:
            folder = root / "storage/message" / each.info["id"]
            _write(folder / f"{message.info['id']}.json", message.info)
            for part in message.parts:
                parts = root / "storage/part" / message.info["id"]
                _write(parts / f"{part['id']}.json", part)
    return root


def write_export(path: Path, made: StoredSession) -> Path:
    messages = [{"info": message.info, "parts": message.parts} for message in made.messages]
    _write(path, {"info": made.info, "messages": messages})
    return path


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


def write_database(path: Path, sessions: Sequence[StoredSession]) -> Path:
    """A database with the columns of 1.2.27: no cost, no tokens, no agent."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, title text,
            directory text, version text, revert text, time_created int, time_updated int);
        CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created int, data text);
        CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);
        CREATE TABLE credential (id text PRIMARY KEY, value text);
        INSERT INTO credential VALUES ('openai', 'sk-secret');
        """
    )
    for each in sessions:
        info = each.info
        revert = json.dumps(info["revert"]) if "revert" in info else None
        named = ("id", "projectID", "parentID", "title", "directory", "version")
        row = [*(info.get(key) for key in named), revert, *info["time"].values()]
        connection.execute(f"INSERT INTO session VALUES ({', '.join('?' * 9)})", row)
        for message in each.messages:
            _insert(connection, message, info["id"])
    connection.commit()
    connection.close()
    return path


def _insert(connection: sqlite3.Connection, message: StoredMessage, session_id: str) -> None:
    info = {k: v for k, v in message.info.items() if k not in ("id", "sessionID")}
    row = (message.info["id"], session_id, info["time"]["created"], json.dumps(info))
    connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
    for part in message.parts:
        data = {k: v for k, v in part.items() if k not in ("id", "sessionID", "messageID")}
        cells = (part["id"], message.info["id"], session_id, json.dumps(data))
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", cells)
