"""Merges messages into turns of user and model, and assigns tool calls to them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.types import DataBlock, Message, ToolCall

from .conversion import Dropped
from .open_calls import OpenCalls

UNANSWERED_RESPONSE = "[Tool execution was interrupted]"
"""The response that is written for an unanswered call."""

EVENT_DETAIL_KEYS = ("status", "is_error", "exit_code", "raw_tool", "part_id", "subagent")
"""Details of a tool message that an event includes."""

TEXT_SEPARATOR = "\n\n"


@dataclass
class EvalTurn:
    """Consecutive messages of one side."""

    role: str
    texts: list[str] = field(default_factory=list)
    after_tools: list[str] = field(default_factory=list)
    """The texts after the last tool call of the turn."""

    @property
    def text(self) -> str:
        return TEXT_SEPARATOR.join(self.texts)

    @property
    def content(self) -> dict[str, Any]:
        return {"role": self.role, "parts": [{"text": self.text}]}


class EvalTurns:
    """Collects turns, and every tool call with the turn that made it."""

    def __init__(self, tool_names: Mapping[str, str]) -> None:
        self.turns: list[EvalTurn] = []
        self._counts: Counter[str] = Counter()
        self.events: list[dict[str, Any]] = []
        self.dropped: list[Dropped] = []
        self._names = tool_names
        self._open: OpenCalls[dict[str, Any]] = OpenCalls()
        self._unnamed_steps = 0

    def take(self, message: Message, where: str) -> None:
        """Add the next message."""
        if message.role == "user":
            self._open_turn("user").texts += self._collect_texts(message, where)
        elif message.role == "assistant":
            self._add_assistant_message(message, where)
        elif message.role in ("tool", "function"):
            self._add_answer(message, where)
        else:
            self.dropped.append(Dropped(where, f"no place for a {message.role} message; left out"))

    def _open_turn(self, role: str) -> EvalTurn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(EvalTurn(role))
            self._counts[role] += 1
        return self.turns[-1]

    def _collect_texts(self, message: Message, where: str) -> list[str]:
        words = [message.text.strip()] if message.text.strip() else []
        if message.content is None or isinstance(message.content, str):
            return words
        for position, block in enumerate(message.content):
            if isinstance(block, DataBlock):
                words.append(format_block_marker(block))
                self.dropped.append(
                    Dropped(f"{where}.content[{position}]", f"written as {words[-1]!r}")
                )
        return words

    def _add_assistant_message(self, message: Message, where: str) -> None:
        turn = self._open_turn("model")
        words = self._collect_texts(message, where)
        turn.texts += words
        if message.tool_calls:
            turn.after_tools = []
        else:
            turn.after_tools += words
        if message.reasoning:
            self.dropped.append(Dropped(f"{where}.reasoning", "no place for it; left out"))
        if not message.tool_calls:
            return
        details = message.details or {}
        message_id = details.get("id")
        step = message_id if not details.get("step") else f"{message_id}#{details['step']}"
        if message_id is None:
            self._unnamed_steps += 1
            step = f"#{self._unnamed_steps}"
        for call in message.tool_calls:
            self._add_call_event(call, message_id, step)

    def _add_call_event(self, call: ToolCall, message_id: Any, step: Any) -> None:
        name = self._names.get(call.name, call.name)
        event = {
            "function_call": {"name": name, "args": call.arguments},
            "function_response": {"name": name, "response": {"error": UNANSWERED_RESPONSE}},
            "turn": len(self.turns),
            "content_role": "model",
            "turn_index": max(self._counts["user"] - 1, 0),
            "model_turn": self._counts["model"],
            "message_id": message_id,
            "step": step,
            "call_id": call.id,
            "status": "unanswered",
            "is_error": True,
        }
        if name != call.name:
            event["raw_tool"] = call.name
        self._open.add(call.id, event)
        self.events.append(event)

    def _add_answer(self, message: Message, where: str) -> None:
        event = self._open.take(message.tool_call_id)
        if event is None:
            self.dropped.append(Dropped(where, "an answer without a call; left out"))
            return
        details = message.details or {}
        failed = bool(details.get("failed", details.get("is_error", False)))
        response = details.get("response")
        if not isinstance(response, Mapping):
            # A tool's text is kept verbatim; only that of blocks is stripped.
            verbatim = isinstance(message.content, str)
            texts = [message.text] if verbatim else self._collect_texts(message, where)
            text = TEXT_SEPARATOR.join(texts)
            response = {"error" if failed else "output": text}
        event["function_response"]["response"] = dict(response)
        event |= {"status": "error" if failed else "completed", "is_error": failed}
        event |= {key: details[key] for key in EVENT_DETAIL_KEYS if details.get(key) is not None}
        # Details may come from a foreign file, in which `is_error` can be any type.
        event["is_error"] = bool(event["is_error"])


def format_block_marker(block: DataBlock) -> str:
    """Return the text marker of a block that is not text, such as `[file: notes.txt]`."""
    extra = block.__pydantic_extra__ or {}
    named = (extra.get(key) for key in ("filename", "description", "mime"))
    name = next((text for text in named if isinstance(text, str) and text), None)
    return f"[{block.type}: {name}]" if name else f"[{block.type}]"
