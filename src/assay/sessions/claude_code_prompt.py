"""The system prompt and the tools that a Claude Code session sent to its model.

Requests are recorded as `api-request`, which names an `api-request-shape` with both. Sessions
without them may have `prompt_snapshot` attachments, whose first one has no tools yet.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .claude_code_kinds import attachment_of
from .foreign_values import list_or_empty, text_or_none


@dataclass
class PromptRecords:
    """The records of one session with its system prompt and tools."""

    _shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    _requests: dict[str, str] = field(default_factory=dict)
    """The shape of each request."""

    _snapshots: list[dict[str, Any]] = field(default_factory=list)

    def take(self, record: dict[str, Any]) -> None:
        """Keep a record if it contains a part of the prompt."""
        kind, shape = record.get("type"), record.get("shapeHash")
        if kind == "api-request-shape" and isinstance(record.get("shape"), dict):
            self._shapes.setdefault(str(shape), record["shape"])
        elif kind == "api-request":
            self._requests[str(record.get("id"))] = str(shape)
        elif attachment_of(record).get("type") == "prompt_snapshot":
            self._snapshots.append(attachment_of(record))

    def read(self, requests: Iterable[object]) -> tuple[str | None, list[dict[str, Any]]]:
        """Return the first system prompt and all tools of these requests, None and [] if unknown.

        The program also requests titles and summaries, with other prompts: `requests` are those
        of the conversation's answers.
        """
        named = dict.fromkeys(self._requests.get(str(each)) for each in requests)
        used = [self._shapes[name] for name in named if name in self._shapes]
        shapes = used or list(self._shapes.values())
        system = next(
            (text for each in shapes if (text := _join_system_prompt(each.get("system")))), None
        )
        tools: dict[str, dict[str, Any]] = {}
        for holder in (*shapes, *self._snapshots):
            for tool in _parse_claude_tools(holder.get("tools")):
                tools.setdefault(tool["name"], tool)
        prefix = next((t for s in self._snapshots if (t := text_or_none(s.get("cliPrefix")))), None)
        for each in self._snapshots if system is None else ():
            if text := _join_system_prompt(each.get("systemPrompt")):
                system = f"{prefix}\n\n{text}" if prefix else text
                break
        return system, list(tools.values())


def _join_system_prompt(stored: object) -> str | None:
    """Join a system prompt that is stored as text, as texts, or as text blocks."""
    parts = stored if isinstance(stored, list) else [stored]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text) or None


def _parse_claude_tools(stored: object) -> Iterable[dict[str, Any]]:
    """Yield tools as `ToolSpec` serializes them. Provider-side tools have no schema."""
    for each in list_or_empty(stored):
        tool = each.get("schema", each) if isinstance(each, dict) else None
        if not isinstance(tool, dict) or text_or_none(tool.get("name")) is None:
            continue
        written: dict[str, Any] = {"name": tool["name"]}
        if text_or_none(tool.get("description")):
            written["description"] = tool["description"]
        if isinstance(tool.get("input_schema"), dict):
            written["parameters"] = tool["input_schema"]
        yield written
