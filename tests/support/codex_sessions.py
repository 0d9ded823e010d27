"""Rollouts as Codex writes them: ordinals, positions, forks and reverts."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

TURN = 3
"""Records of one turn."""


@dataclass
class Written:
    """A rollout on disk, and the positions at which others may continue."""

    path: Path
    rollout_id: str
    positions: list[dict[str, Any]] = field(default_factory=list)
    """Before the first turn, and after each."""

    def end(self, turns: int = -1) -> dict[str, Any]:
        """`history_base` of a rollout that keeps so many turns of this one."""
        return self.positions[turns]


def write_rollout(
    folder: Path,
    thread: str,
    *turns: str,
    rollout: str | None = None,
    second: int = 0,
    base: dict[str, Any] | None = None,
    **meta: Any,
) -> Written:
    """One file; each turn is a question that is answered with itself in capitals.

    `rollout` is the id of a file that replaces an earlier one of the thread.
    """
    stamp = f"2026-11-16T12:{second // 60:02}:{second % 60:02}"
    own = f"{thread}_{rollout}" if rollout else thread
    path = folder / f"rollout-{stamp.replace(':', '-')}-{own}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    payload = {"id": thread, "timestamp": f"{stamp}.5Z", "cli_version": "0.166.0", **meta}
    if base is not None:
        payload["history_base"] = base
    ordinal = base["end_ordinal_exclusive"] if base and "end_ordinal_exclusive" in base else 0
    written = Written(path, rollout or thread)
    with path.open("wb") as file:
        for record in [_record("session_meta", payload), *(r for t in turns for r in _turn(t))]:
            line = {"timestamp": f"{stamp}.5Z", "ordinal": ordinal, **record}
            file.write(json.dumps(line).encode() + b"\n")
            ordinal += 1
            if record["type"] == "session_meta" or record["payload"].get("type") == "task_complete":
                position = {"end_ordinal_exclusive": ordinal, "end_byte_offset": file.tell()}
                written.positions.append({"thread_id": written.rollout_id, **position})
    return written


def _record(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "payload": payload}


def _turn(text: str) -> list[dict[str, Any]]:
    def message(role: str, said: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": said}]
        return _record("response_item", {"type": "message", "role": role, "content": content})

    end = _record("event_msg", {"type": "task_complete", "error": None})
    return [message("user", text), message("assistant", text.upper()), end]


def compress(path: Path) -> Path:
    """Replace a file with its compressed form, as Codex does with cold sessions."""
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    return packed
