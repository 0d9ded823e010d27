"""The conversation that an agent declares in the headers of a call.

These headers are details of single agents and may change with any version, so lineage checks them
against the conversation itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import from_json


@dataclass(frozen=True)
class DeclaredLineage:
    """Ids of a conversation, as declared."""

    conversation: str
    parent: str | None = None
    """The conversation that started this one as a subagent."""

    window: int | None = None
    """Rises with each compaction."""

    kind: str | None = None
    """The kind of the request, such as `turn` or `compaction`."""


def read_declared_lineage(headers: Mapping[str, str]) -> DeclaredLineage | None:
    """Read the headers of Claude Code, Codex and OpenCode. Names are in lower case."""
    if session := headers.get("x-claude-code-session-id"):
        agent = headers.get("x-claude-code-agent-id")
        if not agent:
            return DeclaredLineage(session)
        return DeclaredLineage(agent, headers.get("x-claude-code-parent-agent-id") or session)
    if thread := headers.get("thread-id"):
        metadata = _parse_metadata(headers.get("x-codex-turn-metadata"))
        root = headers.get("session-id")
        kind = metadata.get("request_kind")
        return DeclaredLineage(
            thread,
            root if root != thread else None,
            _read_window(headers, metadata),
            kind if isinstance(kind, str) else None,
        )
    if session := headers.get("x-session-id"):
        return DeclaredLineage(session, headers.get("x-parent-session-id"))
    return None


def _parse_metadata(text: str | None) -> Mapping[str, object]:
    try:
        value = from_json(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_window(headers: Mapping[str, str], metadata: Mapping[str, object]) -> int | None:
    number = metadata.get("window_number")
    if type(number) is int:
        return number
    last = headers.get("x-codex-window-id", "").rpartition(":")[2]
    return int(last) if last.isascii() and last.isdigit() and len(last) < 9 else None
