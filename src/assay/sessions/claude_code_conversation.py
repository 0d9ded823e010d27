"""Convert the records of a Claude Code session into messages and metadata."""

import re
from dataclasses import dataclass, field
from typing import Any

from assay.errors import AssayError, BadRow
from assay.formats import from_anthropic
from assay.types import Message, ModelCall, Usage

from .claude_code_kinds import attachment_of, find_unknown_blocks, is_known_kind, kind_of
from .claude_code_prompt import PromptRecords
from .claude_code_texts import (
    extract_tag,
    find_skip_reason,
    is_notification,
    text_of,
    to_text_block,
)
from .claude_code_tree import message_of, read_message_id
from .foreign_values import parse_cost, parse_token_count, text_or_none
from .session_choice import SampleOptions, SessionMeta
from .transcripts import Conversation

# Keys of a record that the message, the sample or the tree already contains.
_ENVELOPE_KEYS = frozenset(
    """
    attachment cwd gitBranch isMeta isSidechain message parentUuid rendered renderedRole sessionId
    timestamp toolUseResult type userType uuid version
    """.split()
)

_CLAUDE_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,9})\b")
_TASK_IDS = ("agentId", "backgroundTaskId")


@dataclass
class _AssistantRecords:
    """The records of one answer of the model, one per block."""

    first: dict[str, Any]
    place: int
    blocks: list[Any] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ClaudeConversation(Conversation):
    """A session's conversation while its records are read.

    `apart` maps the session ids of subagents in the same file to their prompts.
    """

    meta: SessionMeta
    options: SampleOptions
    apart: dict[str, str]
    _items: list[Message | _AssistantRecords] = field(default_factory=list)
    _answers: dict[str, _AssistantRecords] = field(default_factory=dict)
    _command: Message | None = None
    _prompt: PromptRecords = field(default_factory=PromptRecords)
    _tasks: dict[str, Message] = field(default_factory=dict)
    """The results of calls that started a background task, by the task's id."""

    _open: set[str | None] = field(default_factory=set)
    """The ids of the last answer's calls. `_results_end` is the index of their next result."""

    _results_end: int = 0

    @property
    def count(self) -> int:
        """The number of messages so far."""
        return len(self._items)

    def take(self, record: dict[str, Any]) -> None:
        """Read the next record."""
        kind = record.get("type")
        if kind in ("user", "assistant") and isinstance(record.get("message"), dict):
            self.unknown_kinds.update(find_unknown_blocks(record["message"].get("content")))
            (self._take_user if kind == "user" else self._take_assistant)(record)
        elif attachment_of(record).get("type") == "queued_command":
            # Input that was queued while the agent worked.
            content = attachment_of(record).get("prompt")
            self.unknown_kinds.update(find_unknown_blocks(content))
            self._take_user({**record, "message": {"role": "user", "content": content}})
        else:
            self._take_other(record)

    def _take_other(self, record: dict[str, Any]) -> None:
        kind = kind_of(record)
        self._prompt.take(record)
        if kind == "system/compact_boundary":
            self.compactions += 1
        elif kind == "system/local_command":
            # The program answered the command itself, without a model call.
            self._command = None
        elif kind == "cost-state":
            # The cost of the session and its subagents so far, unless a price is unknown.
            cost = parse_cost(record.get("totalCostUSD"))
            self.cost_usd = None if record.get("hasUnknownModelCost") else cost
        known = is_known_kind(kind)
        (self.omitted if known else self.unknown_kinds)[kind] += 1
        if not known or self.options.raw_records:
            self.records.append(record)

    def _take_assistant(self, record: dict[str, Any]) -> None:
        message = record["message"]
        if message.get("model") == "<synthetic>" and not record.get("isApiErrorMessage"):
            self.skip(record.get("uuid"), "written by the program", record)
            return
        self.interrupted = False
        # A total recorded before this answer does not include its cost.
        self.cost_usd = None
        if self._command is not None:
            # A command that the program passed on to the model.
            self._items.append(self._command)
            self._command = None
        name = read_message_id(record) or f"record {record.get('uuid')}"
        if name not in self._answers:
            self._answers[name] = _AssistantRecords(record, len(self._items))
            self._items.append(self._answers[name])
        answer = self._answers[name]
        content = message.get("content")
        answer.blocks += content if isinstance(content, list) else [to_text_block(content)]
        answer.last = record

    def _take_user(self, record: dict[str, Any]) -> None:
        content = record["message"].get("content")
        blocks = content if isinstance(content, list) else [to_text_block(content)]
        said = []
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._items.append(self._build_tool_result(record, block))
            elif is_notification(block):
                self._command = None
                self._items.append(self._build_notification(record, block))
            elif why := find_skip_reason(record, block):
                self._skip_block(record, block, why)
            else:
                said.append(block)
        if said:
            self._command, self.interrupted = None, False
            self._items.append(self._build_user_message(record, said))

    def _skip_block(self, record: dict[str, Any], block: Any, why: str) -> None:
        text = text_of(block)
        self.interrupted |= why == "interruption"
        if why == "shell command of the user":
            command, output = extract_tag(text, "bash-input"), extract_tag(text, "bash-stdout")
            if command is not None:
                self.user_shell.append({"tool": "bash", "args": {"command": command}})
            elif self.user_shell:
                self.user_shell[-1]["output"] = text if output is None else output
            return
        if why == "command":
            parts = extract_tag(text, "command-name"), extract_tag(text, "command-args")
            words = [part.strip() for part in parts if part and part.strip()]
            self._command = self._build_user_message(
                record, [to_text_block(" ".join(words))], command=text
            )
        if text.lstrip().startswith("<local-command-"):
            # The program answered the command itself, without a model call.
            self._command = None
        if self.options.synthetic and why == "injected by the program":
            self._items.append(self._build_user_message(record, [block], synthetic=True))
        else:
            self.skip(record.get("uuid"), why, block)

    def _build_user_message(
        self, record: dict[str, Any], blocks: list[Any], **more: Any
    ) -> Message:
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        plain = all(isinstance(text, str) for text in texts) and len(texts) == len(blocks)
        content: Any = "\n\n".join(map(str, texts)).strip() if plain else blocks
        message = _parse_anthropic_message({"role": "user", "content": content}, self.meta.id)[0]
        details = {"id": record.get("uuid"), **more, **_build_record_details(record)}
        stamp = text_or_none(record.get("timestamp"))
        return message.model_copy(update={"timestamp": stamp, "details": details})

    def _build_notification(self, record: dict[str, Any], block: dict[str, Any]) -> Message:
        """Build the message with the outcome of a background task."""
        # The call already has a result, which reports the start of the task. Providers reject a
        # second one, so the outcome becomes a user message that names the call.
        text = block["text"]
        names = ("task-id", "tool-use-id", "status")
        task, call, status = ((extract_tag(text, name) or "").strip() for name in names)
        started = self._tasks.get(task)
        if started is not None:
            call = call or started.tool_call_id or ""
        fields = {"tool_call_id": call, "task_id": task, "status": status}
        metadata = {key: value for key, value in fields.items() if value}
        message = self._build_user_message(record, [block], synthetic=True)
        details = dict(message.details or {})
        if started is not None and "subagent" in (started.details or {}):
            details["subagent"] = (started.details or {})["subagent"]
        metadata = {"kind": "task_notification", **metadata}
        return message.model_copy(update={"metadata": metadata, "details": details})

    def _build_tool_result(self, record: dict[str, Any], block: dict[str, Any]) -> Message:
        message = _parse_anthropic_message({"role": "user", "content": [block]}, self.meta.id)[0]
        failed = block.get("is_error") is True
        details: dict[str, Any] = {"message_id": record.get("uuid")}
        details |= {"status": "error" if failed else "completed", "failed": failed}
        details |= {"is_error": failed, **_build_record_details(record)}
        if failed and (code := _CLAUDE_EXIT_CODE.match(message.text)):
            details["exit_code"] = int(code[1])
        result = record.get("toolUseResult")
        if result is not None:
            details["result"] = result
        if isinstance(result, dict) and text_or_none(result.get("agentId")):
            parent = self.meta.parent_id or self.meta.id
            details["subagent"] = f"{parent}/agent-{result['agentId']}"
        stamp = text_or_none(record.get("timestamp"))
        message = message.model_copy(update={"timestamp": stamp, "details": details})
        for key in _TASK_IDS:
            if isinstance(result, dict) and (task := text_or_none(result.get(key))):
                self._tasks[task] = message
        return message

    def finish(self) -> Conversation:
        """Return the conversation, with the blocks of each answer merged."""
        requests = (answer.last.get("requestRef") for answer in self._answers.values())
        system, self.tools = self._prompt.read(requests)
        if system is not None:
            self.messages.append(Message(role="system", content=system))
        names: dict[str | None, str] = {}
        started: dict[str | None, str] = {}
        waiting: dict[str, list[str]] = {}
        # Reversed, so that pop() assigns equal prompts in the order of the file.
        for key, task in reversed(self.apart.items()):
            waiting.setdefault(task, []).append(key)
        for item in self._items:
            if isinstance(item, Message):
                call_id = item.tool_call_id
                if item.role == "tool":
                    update: dict[str, Any] = {"name": names.get(call_id)}
                    if call_id in started:
                        update["details"] = {**(item.details or {}), "subagent": started[call_id]}
                    item = item.model_copy(update=update)
                if item.role == "tool" and call_id in self._open:
                    # Before input that was queued during the call.
                    self.messages.insert(self._results_end, item)
                    self._results_end += 1
                else:
                    self.messages.append(item)
                continue
            message = self._build_assistant_message(item)
            for call in message.tool_calls:
                names[call.id] = call.name
                prompt = call.arguments.get("prompt")
                if isinstance(prompt, str) and waiting.get(prompt):
                    started[call.id] = waiting[prompt].pop()
            self.messages.append(message)
            self._open = {call.id for call in message.tool_calls}
            self._results_end = len(self.messages)
        return self

    def _build_assistant_message(self, answer: _AssistantRecords) -> Message:
        said, record = answer.last["message"], answer.first
        failed = bool(record.get("isApiErrorMessage"))
        blocks = [block for block in answer.blocks if isinstance(block, dict)]
        error = "\n\n".join(str(block.get("text", "")) for block in blocks) if failed else None
        content = [] if failed else blocks
        message = _parse_anthropic_message({"role": "assistant", "content": content}, self.meta.id)[
            0
        ]
        details: dict[str, Any] = {"id": read_message_id(record) or record.get("uuid")}
        details |= _build_record_details(answer.last)
        if error is not None:
            details["error"] = error
        self.calls.append(
            ModelCall(
                model=None if failed else text_or_none(said.get("model")),
                message_index=len(self.messages),
                finish_reason=text_or_none(said.get("stop_reason")),
                usage=None if failed else _parse_claude_usage(answer.last),
                error=error,
            )
        )
        update = {
            "model": self.calls[-1].model,
            "provider": "anthropic",
            "timestamp": text_or_none(record.get("timestamp")),
            "details": details,
        }
        return message.model_copy(update=update)


def _parse_anthropic_message(wire: dict[str, Any], session_id: str) -> list[Message]:
    try:
        return from_anthropic([wire])
    except AssayError as error:
        raise BadRow(error.message, where=f"session {session_id}: {error.where}") from None


def _build_record_details(record: dict[str, Any]) -> dict[str, Any]:
    """Return the remaining fields of a record under one key."""
    rest = {key: value for key, value in record.items() if key not in _ENVELOPE_KEYS}
    return {"record": rest} if rest else {}


def _parse_claude_usage(record: dict[str, Any]) -> Usage | None:
    """Parse the usage of an answer from its last record, the only complete one."""
    stored = message_of(record).get("usage")
    if not isinstance(stored, dict):
        return None
    names = ("input", "output", "cache_read_input", "cache_creation_input")
    counts = (parse_token_count(stored.get(f"{name}_tokens")) for name in names)
    given, answer, read, written = counts
    return Usage(
        # Anthropic counts cache reads and writes separately from the input.
        input_tokens=None if given is None else given + (read or 0) + (written or 0),
        output_tokens=answer,
        cached_tokens=read,
        cost_usd=parse_cost(record.get("costUSD")),
        stored=stored,
    )
