"""What was said in a Codex session: its items as messages, and the rest beside them."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from assay.models import DataBlock, Message, ModelCall, TextBlock, ToolCall, Usage

from .opencode import SampleOptions
from .transcripts import Conversation, count_at, text_or_none

_INJECTED = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions instructions|collaboration_mode"
    r"|skills?_instructions|skill|apps_instructions|subagent_notification|INSTRUCTIONS"
    r"|personality_spec|model_switch)\b[^>]*>|# AGENTS\.md instructions for )"
)
_ABORTED = re.compile(r"\s*<turn_aborted>")
_SHELL = re.compile(r"\s*<user_shell_command>\s*<command>(.*?)</command>\s*(?:<result>)?(.*)", re.S)
_CLOSING = re.compile(r"(?:</result>\s*)?(?:</user_shell_command>\s*)?$")
_EXIT = re.compile(r"(?:^|\n)(?:Exit code:|Process exited with code) (-?\d+)")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_REPEATS = ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content")
"""Events that say again what an item says."""

_OF_ITEM = frozenset("type id role content name arguments input call_id action status".split())


@dataclass
class _Step:
    """One answer of the model, while its items come in."""

    texts: list[str] = field(default_factory=list)
    others: list[DataBlock] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    """Of tools that the provider runs, whose results are not recorded."""

    hidden: list[dict[str, Any]] = field(default_factory=list)
    """Reasoning that only the provider can read."""

    timestamp: str | None = None
    id: str | None = None


@dataclass
class CodexConversation:
    """A session's conversation while its lines are read."""

    options: SampleOptions
    info: dict[str, Any]
    children: list[str]
    """Ids of the sessions of subagents."""

    talk: Conversation = field(default_factory=Conversation)
    repeated: int = 0
    """Events that were left out because they repeat items."""

    _step: _Step | None = None
    _names: dict[str | None, str] = field(default_factory=dict)
    _model: str | None = None
    _total: Any = None
    _begun: bool = False

    def __post_init__(self) -> None:
        base = self.info.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else base
        if isinstance(text, str) and text:
            self.talk.messages.append(Message(role="system", content=text))
            self.info = {k: v for k, v in self.info.items() if k != "base_instructions"}

    def take(self, record: dict[str, Any]) -> None:
        """Read the next line."""
        kind, payload = record["type"], record["payload"]
        if kind == "session_meta":
            if self._begun:
                # A fork repeats what its parent began with.
                self.talk.records.append(record)
            self._begun = True
        elif kind == "turn_context":
            self._model = text_or_none(payload.get("model")) or self._model
            self.talk.records.append(record)
        elif kind == "compacted":
            self._close()
            self.talk.compactions += 1
            self.talk.skip(None, "compaction summary", payload)
        elif kind == "response_item":
            self._take_item(record, payload)
        elif kind == "event_msg":
            self._take_event(record, payload)
        else:
            self.talk.records.append(record)

    def _take_item(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") != "assistant":
            self._close()
            self._take_said(record, item)
        elif kind == "message":
            if self._step is not None and self._step.answers:
                # What was said after a search of the provider's is said in the light of it.
                self._close()
            self._speaking(record).texts += self._spoken(item)
        elif kind == "reasoning":
            self._think(self._speaking(record), item)
        elif kind in _CALLS:
            self._call(self._speaking(record), item)
        elif kind in _OUTPUTS:
            self._close()
            self._answer(record, item)
        else:
            self.talk.records.append(record)

    def _speaking(self, record: dict[str, Any]) -> _Step:
        if self._step is None:
            self._step = _Step(timestamp=text_or_none(record.get("timestamp")))
            self.talk.interrupted = False
        return self._step

    def _spoken(self, item: dict[str, Any]) -> list[str]:
        assert self._step is not None
        blocks = _blocks(item.get("content"))
        self._step.id = text_or_none(item.get("id")) or self._step.id
        self._step.others += [block for block in blocks if isinstance(block, DataBlock)]
        return [block.text for block in blocks if isinstance(block, TextBlock) and block.text]

    def _think(self, step: _Step, item: dict[str, Any]) -> None:
        parts = item.get("content") or item.get("summary")
        for part in parts if isinstance(parts, list) else ():
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                step.reasoning.append(text)
        if item.get("encrypted_content"):
            step.hidden.append(item)

    def _call(self, step: _Step, item: dict[str, Any]) -> None:
        kind = item["type"]
        call_id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
        name = text_or_none(item.get("name")) or str(kind).removesuffix("_call")
        arguments: Any = item.get("arguments")
        if kind == "custom_tool_call":
            arguments = {"input": item.get("input")}
        elif kind != "function_call":
            arguments = item.get("action") if isinstance(item.get("action"), dict) else {}
        rest = {key: value for key, value in item.items() if key not in _OF_ITEM}
        own: dict[str, Any] = {"codex": {"type": kind, **rest}} if kind != "function_call" else {}
        call = ToolCall.model_validate({"id": call_id, "name": name, "arguments": arguments, **own})
        step.calls.append(call)
        self._names[call_id] = name
        if kind == "web_search_call":
            details = {"status": item.get("status"), "recorded": False}
            step.answers.append(
                Message(role="tool", name=name, tool_call_id=call_id, details=details)
            )

    def _close(self) -> None:
        """Put the answer of the model, if one is open, into the conversation."""
        step, self._step = self._step, None
        if step is None:
            return
        text = "\n\n".join(step.texts)
        content: Any = text if text or not step.calls else None
        if step.others:
            content = [*([{"type": "text", "text": text}] if text else []), *step.others]
        details: dict[str, Any] = {} if step.id is None else {"id": step.id}
        if step.hidden:
            details["reasoning_items"] = step.hidden
        self.talk.calls.append(ModelCall(model=self._model, message_index=len(self.talk.messages)))
        self.talk.messages.append(
            Message(
                role="assistant",
                content=content,
                tool_calls=tuple(step.calls),
                reasoning="\n\n".join(step.reasoning) or None,
                model=self._model,
                provider=text_or_none(self.info.get("model_provider")),
                timestamp=step.timestamp,
                details=details or None,
            )
        )
        self.talk.messages += step.answers

    def _take_said(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        blocks = _blocks(item.get("content"))
        text = "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))
        others = [block for block in blocks if isinstance(block, DataBlock)]
        if shell := _SHELL.match(text):
            command = {"tool": "shell", "args": {"command": shell[1].strip()}}
            output = _CLOSING.sub("", shell[2]).strip()
            self.talk.user_shell.append({**command, "output": output})
            return
        why = self._not_typed(str(item.get("role")), text)
        if why == "interruption":
            self.talk.interrupted = True
        if why is not None and not (self.options.synthetic and why != "interruption"):
            self.talk.skip(item.get("id"), why, item)
            return
        said: list[TextBlock | DataBlock] = [TextBlock(type="text", text=text)] if text else []
        details: dict[str, Any] = {"synthetic": True} if why is not None else {}
        if why is None:
            self.talk.interrupted = False
        self.talk.messages.append(
            Message(
                role=str(item.get("role") or "user"),
                content=text if not others else (*said, *others),
                timestamp=text_or_none(record.get("timestamp")),
                details=details or None,
            )
        )

    def _not_typed(self, role: str, text: str) -> str | None:
        """Why a message is not of the user's, or None."""
        if _ABORTED.match(text):
            return "interruption"
        injected = role != "user" or _INJECTED.match(text)
        return "injected by the program" if injected else None

    def _answer(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        call_id = text_or_none(item.get("call_id"))
        output = item.get("output")
        success = None
        if isinstance(output, dict):
            success, output = output.get("success"), output.get("content")
        blocks = _blocks(output) if isinstance(output, list) else []
        text = (
            output if isinstance(output, str) else "".join(getattr(b, "text", "") for b in blocks)
        )
        code = _exit_code(text)
        failed = success is False
        details: dict[str, Any] = {"status": "error" if failed else "completed", "failed": failed}
        details["is_error"] = failed or code not in (None, 0)
        if code is not None:
            details["exit_code"] = code
        if started := [child for child in self.children if child in text]:
            details["subagent"] = started[0]
        plain = all(isinstance(block, TextBlock) for block in blocks)
        self.talk.messages.append(
            Message(
                role="tool",
                name=self._names.get(call_id),
                tool_call_id=call_id,
                content=text if plain else tuple(blocks),
                timestamp=text_or_none(record.get("timestamp")),
                details=details,
            )
        )

    def _take_event(self, record: dict[str, Any], event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind in _REPEATS:
            self.repeated += 1
            return
        if kind == "token_count":
            self._count(event)
        elif kind == "turn_aborted":
            self._close()
            self.talk.interrupted = True
        elif kind == "thread_rolled_back":
            self._close()
            self._roll_back(event.get("num_turns"))
        elif kind == "error" and self._fail(event):
            return
        self.talk.records.append(record)

    def _fail(self, event: dict[str, Any]) -> bool:
        """Note an error of the endpoint as a model call that gave no answer."""
        text = text_or_none(event.get("message"))
        if text is None:
            return False
        self._close()
        self.talk.calls.append(
            ModelCall(model=self._model, message_index=len(self.talk.messages), error=text)
        )
        self.talk.messages.append(Message(role="assistant", content="", details={"error": event}))
        return True

    def _count(self, event: dict[str, Any]) -> None:
        """Note what the last answer consumed, once: the same count is often written again."""
        info = event.get("info")
        stored = info.get("last_token_usage") if isinstance(info, dict) else None
        if not isinstance(info, dict) or not isinstance(stored, dict):
            return
        total = info.get("total_token_usage")
        if total is not None and total == self._total:
            return
        self._total = total
        self._close()
        for place in range(len(self.talk.calls) - 1, -1, -1):
            call = self.talk.calls[place]
            if call.error is None:
                if call.usage is None:
                    update = {"usage": _usage(stored)}
                    self.talk.calls[place] = call.model_copy(update=update)
                return

    def _roll_back(self, turns: object) -> None:
        """Take back the last turns of the user, as the user did."""
        for _ in range(count_at(turns) or 0):
            asked = [
                place
                for place, message in enumerate(self.talk.messages)
                if message.role == "user" and not (message.details or {}).get("synthetic")
            ]
            if not asked or self.options.keep_reverted:
                return
            undone = self.talk.messages[asked[-1] :]
            self.talk.reverted += [message.to_dict() for message in reversed(undone)]
            del self.talk.messages[asked[-1] :]
            self.talk.calls = [
                call for call in self.talk.calls if (call.message_index or 0) < asked[-1]
            ]
            self.talk.interrupted = False

    def finished(self) -> Conversation:
        """The conversation, when all lines are read."""
        self._close()
        self.talk.reverted.reverse()
        return self.talk


def _blocks(content: Any) -> list[TextBlock | DataBlock]:
    """Text and images of an item; a kind that is not known is kept as it came."""
    if isinstance(content, str):
        return [TextBlock(type="text", text=content)]
    blocks: list[TextBlock | DataBlock] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("text"), str):
            blocks.append(TextBlock(type="text", text=part["text"]))
        elif isinstance(part.get("image_url"), str):
            url = {"url": part["image_url"]}
            blocks.append(DataBlock.model_validate({"type": "image_url", "image_url": url}))
        else:
            blocks.append(DataBlock.model_validate({"type": "unknown", **part}))
    return blocks


def _exit_code(text: str) -> int | None:
    """How a shell command ended, in either of the ways in which outputs tell it."""
    if text.startswith("{"):
        try:
            metadata = json.loads(text).get("metadata")
        except (ValueError, AttributeError):
            return None
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        return code if type(code) is int else None
    found = _EXIT.search(text[:400])
    return int(found[1]) if found else None


def _usage(stored: dict[str, Any]) -> Usage:
    # As OpenAI counts: the input includes what was cached, the output includes the reasoning.
    return Usage(
        input_tokens=count_at(stored.get("input_tokens")),
        output_tokens=count_at(stored.get("output_tokens")),
        cached_tokens=count_at(stored.get("cached_input_tokens")),
        reasoning_tokens=count_at(stored.get("reasoning_output_tokens")),
        stored=stored,
    )
