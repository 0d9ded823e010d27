"""Convert the items of a Codex session into messages and metadata."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from assay.types import DataBlock, Message, ModelCall, TextBlock, ToolCall, Usage

from .codex_kinds import count_unknown_records
from .codex_outcomes import CallOutcome, parse_text_outcome, read_event_outcome
from .foreign_values import dict_or_empty, list_or_empty, parse_token_count, text_or_none
from .session_choice import SampleOptions
from .transcripts import Conversation

# Openings of texts that Codex itself sends in the name of the user.
_INJECTED_CONTEXT = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions instructions|collaboration_mode"
    r"|skills?_instructions|skill|apps_instructions|subagent_notification|INSTRUCTIONS"
    r"|personality_spec|model_switch)\b[^>]*>|# AGENTS\.md instructions for )"
)
_ABORTED_TURN = re.compile(r"\s*<turn_aborted>")
_USER_SHELL = re.compile(
    r"\s*<user_shell_command>\s*<command>(.*?)</command>\s*(?:<result>)?(.*)", re.S
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_WORD = re.compile(r"[\w.-]+")
_SHELL_CLOSING_TAGS = re.compile(r"(?:</result>\s*)?(?:</user_shell_command>\s*)?$")
_CALL_ITEMS = (
    *("function_call", "custom_tool_call", "local_shell_call", "web_search_call"),
    "tool_search_call",
)
_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
# Events that repeat the content of an item.
_REPEATED_EVENTS = (
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
)

_REPEATED_ITEMS = ("UserMessage", "AgentMessage", "Reasoning")
_TURN_COMPLETE = ("task_complete", "turn_complete")
# All other fields of an item are kept unchanged beside its call.
_ITEM_FIELDS = frozenset(
    "type id role content name namespace arguments input call_id action status"
    " internal_chat_message_metadata_passthrough".split()
)


@dataclass
class _PendingAnswer:
    """One answer of the model, while its items are read."""

    said: list[TextBlock | DataBlock] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    """Answers of provider-side tools, whose results are not recorded."""

    hidden: list[dict[str, Any]] = field(default_factory=list)
    """Reasoning items that the provider encrypted."""

    timestamp: str | None = None
    id: str | None = None
    compaction: bool = False
    """Whether the answer is a summary for a compaction."""


@dataclass(frozen=True)
class ConversationCheckpoint:
    """A state of a conversation that can be restored."""

    messages: int
    calls: int
    model: str | None
    total: Any
    interrupted: bool


@dataclass(kw_only=True)
class CodexConversation(Conversation):
    """A session's conversation while its lines are read."""

    options: SampleOptions
    info: dict[str, Any]
    children: list[str]
    """Ids of the sessions of subagents."""

    repeated: int = 0
    """The number of events that were omitted because they repeat items."""

    _step: _PendingAnswer | None = None
    _names: dict[str | None, str] = field(default_factory=dict)
    _outcomes: dict[str, CallOutcome] = field(default_factory=dict)
    _answered: dict[str | None, int] = field(default_factory=dict)
    """The index of the message that answers a call."""

    _model: str | None = None
    _total: Any = None
    _begun: bool = False
    _turns: list[tuple[int, int]] = field(default_factory=list)
    """The numbers of messages and calls before each turn of the user."""

    _counted: list[int] = field(default_factory=list)
    """The indexes of calls that gave an answer, which token counts refer to."""

    def __post_init__(self) -> None:
        self._places = {child: place for place, child in enumerate(self.children)}
        base = self.info.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else base
        if isinstance(text, str) and text:
            self.messages.append(Message(role="system", content=text))
            self.info = {k: v for k, v in self.info.items() if k != "base_instructions"}

    def take(self, record: dict[str, Any]) -> None:
        """Process the next line."""
        kind, payload = record["type"], record["payload"]
        count_unknown_records(record, self.unknown_kinds)
        if kind == "session_meta":
            if self._begun:
                # A fork repeats the `session_meta` of its parent.
                self.records.append(record)
            self._begun = True
        elif kind == "turn_context":
            self._model = text_or_none(payload.get("model")) or self._model
            self.records.append(record)
        elif kind == "compacted":
            self._close_answer()
            self._remove_summary(text_or_none(payload.get("message")) or "")
            self.compactions += 1
            self.skip(None, "compaction summary", payload)
        elif kind == "token_usage_record":
            self._close_answer()
            # The usage of one response of the model, with or without an answer.
            if isinstance(usage := payload.get("usage"), dict):
                if not self.calls or self.calls[-1].usage or self.calls[-1].error:
                    self._add_model_call(ModelCall(model=self._model))
                update = {"usage": _parse_codex_usage(usage)}
                self.calls[-1] = self.calls[-1].model_copy(update=update)
            self.records.append(record)
        elif kind == "response_item":
            self._take_item(record, payload)
        elif kind == "event_msg":
            self._take_event(record, payload)
        else:
            self.records.append(record)

    def _take_item(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") != "assistant":
            self._close_answer()
            self._take_message(record, item)
        elif kind == "message":
            if self._step is not None and self._step.answers:
                # Text after a provider-side search depends on its result: start a new message.
                self._close_answer()
            step = self._open_answer(record)
            step.id = text_or_none(item.get("id")) or step.id
            step.said += _parse_codex_blocks(item.get("content"))
        elif kind == "reasoning":
            step = self._open_answer(record)
            parts = list_or_empty(item.get("content") or item.get("summary"))
            texts = (text_or_none(dict_or_empty(part).get("text")) for part in parts)
            step.reasoning += [text for text in texts if text is not None]
            if item.get("encrypted_content"):
                step.hidden.append(item)
        elif kind in _CALL_ITEMS:
            self._add_tool_call(self._open_answer(record), item)
        elif kind in _OUTPUT_ITEMS:
            self._close_answer()
            self._add_tool_result(record, item)
        else:
            self.records.append(record)

    def _open_answer(self, record: dict[str, Any]) -> _PendingAnswer:
        summary = dict_or_empty(record.get("metadata")).get("compaction_output") is True
        step = self._step
        if step is not None and step.compaction != summary and (step.said or step.calls):
            self._close_answer()
        if self._step is None:
            self._step = _PendingAnswer(timestamp=text_or_none(record.get("timestamp")))
            self.interrupted = False
        self._step.compaction = summary
        return self._step

    def _add_tool_call(self, step: _PendingAnswer, item: dict[str, Any]) -> None:
        kind = item["type"]
        call_id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
        name = text_or_none(item.get("name")) or str(kind).removesuffix("_call")
        namespace = text_or_none(item.get("namespace"))
        # Tools at the top level may have the namespace of the function protocol; others are named
        # with theirs, such as `mcp__shop__lookup`.
        if namespace is not None and namespace != "functions":
            name = f"{namespace.removesuffix('__')}__{name.removeprefix('__')}"
        arguments: Any = item.get("arguments")
        if kind == "custom_tool_call":
            arguments = {"input": item.get("input")}
        elif kind == "tool_search_call":
            # Most model servers write an object here, a few a string, as for functions.
            arguments = arguments if isinstance(arguments, dict | str) else {}
        elif kind != "function_call":
            arguments = item.get("action") if isinstance(item.get("action"), dict) else {}
        rest = {key: value for key, value in item.items() if key not in _ITEM_FIELDS}
        own: dict[str, Any] = {"codex": {"type": kind, **rest}} if kind != "function_call" else {}
        call = ToolCall.model_validate({"id": call_id, "name": name, "arguments": arguments, **own})
        step.calls.append(call)
        self._names[call_id] = name
        self._answered.pop(call_id, None)
        if kind == "web_search_call":
            details = {"status": item.get("status"), "recorded": False}
            step.answers.append(
                Message(role="tool", name=name, tool_call_id=call_id, details=details)
            )

    def _close_answer(self) -> None:
        """Append the pending answer of the model, if there is one, to the conversation."""
        step, self._step = self._step, None
        if step is None:
            return
        content = _join_codex_content(step.said)
        details: dict[str, Any] = {} if step.id is None else {"id": step.id}
        if step.hidden:
            details["reasoning_items"] = step.hidden
        answer = Message(
            role="assistant",
            content=None if step.calls and not content else content,
            tool_calls=tuple(step.calls),
            reasoning="\n\n".join(step.reasoning) or None,
            model=self._model,
            provider=text_or_none(self.info.get("model_provider")),
            timestamp=step.timestamp,
            details=details or None,
        )
        if step.compaction:
            # The model's summary is not a part of the conversation. Its tokens are still counted.
            self._add_model_call(ModelCall(model=self._model, purpose="summary"))
            self._skip_summary(answer)
            return
        self._add_model_call(ModelCall(model=self._model, message_index=len(self.messages)))
        self.messages.append(answer)
        self.messages += step.answers

    def _add_model_call(self, call: ModelCall) -> None:
        if call.error is None:
            self._counted.append(len(self.calls))
        self.calls.append(call)

    def _skip_summary(self, answer: Message) -> None:
        self.skip((answer.details or {}).get("id"), "compaction reply", answer.to_dict())

    def _remove_summary(self, summary: str) -> None:
        # Versions before 0.166 do not mark the answer that became the summary.
        if not self.messages:
            return
        answer, place = self.messages[-1], len(self.messages) - 1
        written = answer.role == "assistant" and not answer.tool_calls and bool(answer.text)
        if not written or not summary.endswith(answer.text):
            return
        del self.messages[place]
        self._skip_summary(answer)
        # Calls are in the order of their messages, so the answer's is among the last ones.
        for number in range(len(self.calls) - 1, -1, -1):
            call = self.calls[number]
            if call.message_index == place:
                update = {"message_index": None, "purpose": "summary"}
                self.calls[number] = call.model_copy(update=update)
            if call.message_index is not None:
                break

    def _take_message(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        blocks = _parse_codex_blocks(item.get("content"))
        text = "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))
        if shell := _USER_SHELL.match(text):
            command = {"tool": "shell", "args": {"command": shell[1].strip()}}
            output = _SHELL_CLOSING_TAGS.sub("", shell[2]).strip()
            self.user_shell.append({**command, "output": output})
            return
        why = _find_message_skip_reason(item, text)
        if why == "interruption":
            self.interrupted = True
        if why is not None and not (self.options.synthetic and why != "interruption"):
            self.skip(item.get("id"), why, item)
            return
        details: dict[str, Any] = {"synthetic": True} if why is not None else {}
        if why is None:
            self.interrupted = False
            self._turns.append((len(self.messages), len(self.calls)))
        self.messages.append(
            Message(
                role=str(item.get("role") or "user"),
                content=_join_codex_content(blocks),
                timestamp=text_or_none(record.get("timestamp")),
                details=details or None,
            )
        )

    def _add_tool_result(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        call_id = text_or_none(item.get("call_id"))
        output = item.get("output")
        success = None
        if isinstance(output, dict):
            success, output = output.get("success"), output.get("content")
        elif item["type"] == "tool_search_output":
            output = json.dumps(item.get("tools"), ensure_ascii=False)
            success = item.get("status") != "failed"
        blocks = _parse_codex_blocks(output) if isinstance(output, list) else []
        text = (
            output if isinstance(output, str) else "\n".join(getattr(b, "text", "") for b in blocks)
        )
        outcome = self._outcomes.pop(call_id or "", None)
        if outcome is None:
            outcome = parse_text_outcome(text) if success is not False else CallOutcome(failed=True)
        details = outcome.to_details()
        if self._places:
            # One pass over the text, however many subagents there are.
            words = {*_UUID.findall(text), *_ID_WORD.findall(text)} & self._places.keys()
            if words:
                details["subagent"] = min(words, key=self._places.__getitem__)
        plain = all(isinstance(block, TextBlock) for block in blocks)
        self._answered[call_id] = len(self.messages)
        self.messages.append(
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
        item = event.get("item")
        repeating = isinstance(item, dict) and item.get("type") in _REPEATED_ITEMS
        if kind in _REPEATED_EVENTS or (kind == "item_completed" and repeating):
            self.repeated += 1
            return
        if settled := read_event_outcome(event):
            self._record_outcome(*settled)
        if kind == "token_count":
            self._count_answer_tokens(event)
        elif kind == "turn_aborted":
            self._close_answer()
            self.interrupted = True
        elif kind == "thread_rolled_back":
            self._close_answer()
            count = min(parse_token_count(event.get("num_turns")) or 0, len(self._turns))
            if count and not self.options.keep_reverted:
                self._undo(*self._turns[-count])
                self.interrupted = False
        elif kind == "error" and self._add_error(event):
            return
        elif kind in _TURN_COMPLETE:
            self._close_answer()
            self._add_error(event.get("error"))
        self.records.append(record)

    def _record_outcome(self, call_id: str, outcome: CallOutcome) -> None:
        """Record the outcome of a call, before or after its answer is read."""
        place = self._answered.get(call_id, len(self.messages))
        answer = self.messages[place] if place < len(self.messages) else None
        if answer is None or answer.tool_call_id != call_id:
            self._outcomes[call_id] = outcome
            return
        before = {k: v for k, v in (answer.details or {}).items() if k != "exit_code"}
        details = {**before, **outcome.to_details()}
        self.messages[place] = answer.model_copy(update={"details": details})

    def _add_error(self, event: Any) -> bool:
        """Record an error of the endpoint as a model call without an answer."""
        text = text_or_none(event.get("message") if isinstance(event, dict) else event)
        if text is None:
            return False
        self._close_answer()
        # Several events may report one error.
        last = self.messages[-1].details if self.messages else None
        if self.calls and self.calls[-1].error == text and "error" in (last or {}):
            return True
        self._add_model_call(
            ModelCall(model=self._model, message_index=len(self.messages), error=text)
        )
        self.messages.append(Message(role="assistant", content="", details={"error": event}))
        return True

    def _count_answer_tokens(self, event: dict[str, Any]) -> None:
        """Record the usage of the last answer once: the same count is often repeated."""
        info = dict_or_empty(event.get("info"))
        stored = info.get("last_token_usage")
        if not isinstance(stored, dict):
            return
        total = info.get("total_token_usage")
        if total is not None and total == self._total:
            return
        self._total = total
        self._close_answer()
        place = self._counted[-1] if self._counted else None
        if place is not None and self.calls[place].usage is None:
            update = {"usage": _parse_codex_usage(stored)}
            self.calls[place] = self.calls[place].model_copy(update=update)

    def _undo(self, messages: int, calls: int) -> None:
        """Revert all messages and calls after the first so many."""
        self.reverted += [message.to_dict() for message in self.messages[messages:]]
        del self.messages[messages:], self.calls[calls:]
        while self._turns and self._turns[-1][0] >= messages:
            self._turns.pop()
        while self._counted and self._counted[-1] >= calls:
            self._counted.pop()

    def mark(self) -> ConversationCheckpoint:
        """Return a checkpoint at the current end of the conversation."""
        self._close_answer()
        lengths = len(self.messages), len(self.calls)
        return ConversationCheckpoint(*lengths, self._model, self._total, self.interrupted)

    def rewind(self, mark: ConversationCheckpoint) -> None:
        """Restore an earlier checkpoint; later messages become reverted ones."""
        self._close_answer()
        if not self.options.keep_reverted:
            self._undo(mark.messages, mark.calls)
        self._model, self._total = mark.model, mark.total
        self.interrupted = mark.interrupted

    def finish(self) -> Conversation:
        """Return the conversation after the last line."""
        self._close_answer()
        return self


def _find_message_skip_reason(item: dict[str, Any], text: str) -> str | None:
    """Return why a message was not typed by the user, or None."""
    passed = dict_or_empty(item.get("internal_chat_message_metadata_passthrough"))
    kinds = passed.get("content_item_kinds")
    # Since 0.166 each part names its origin: `user.text`, `environments.environment_context`.
    origins = {str(kind).partition(".")[0] for kind in kinds or () if "." in str(kind)}
    if item.get("role") == "user" and origins == {"user"}:
        return None
    if _ABORTED_TURN.match(text):
        return "interruption"
    foreign = bool(origins) and "user" not in origins
    injected = item.get("role") != "user" or foreign or _INJECTED_CONTEXT.match(text)
    return "injected by the program" if injected else None


def _parse_codex_blocks(content: Any) -> list[TextBlock | DataBlock]:
    """Parse text and images of an item; keep unknown kinds unchanged."""
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


def _join_codex_content(
    blocks: list[TextBlock | DataBlock],
) -> str | tuple[TextBlock | DataBlock, ...]:
    """Join blocks that are all text; otherwise return all blocks in order."""
    said = tuple(block for block in blocks if not isinstance(block, TextBlock) or block.text)
    texts = [block.text for block in said if isinstance(block, TextBlock)]
    return "\n\n".join(texts) if len(texts) == len(said) else said


def _parse_codex_usage(stored: dict[str, Any]) -> Usage:
    # OpenAI's counts: the input includes cached tokens, the output includes reasoning.
    return Usage(
        input_tokens=parse_token_count(stored.get("input_tokens")),
        output_tokens=parse_token_count(stored.get("output_tokens")),
        cached_tokens=parse_token_count(stored.get("cached_input_tokens")),
        reasoning_tokens=parse_token_count(stored.get("reasoning_output_tokens")),
        stored=stored,
    )
