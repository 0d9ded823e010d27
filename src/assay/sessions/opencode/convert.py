"""Convert a stored OpenCode session into a sample."""

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from assay.types import DataBlock, Message, ModelCall, Sample, Status, TextBlock

from ..foreign_values import dict_or_empty, parse_epoch_ms, text_or_none
from ..session_choice import SampleOptions
from ..transcripts import Conversation
from .archive import StoredMessage, StoredSession
from .step_parts import StepParts, drop_container_ids, split_steps
from .stored_info import (
    build_session_input,
    collect_extra_info,
    count_unknown_kinds,
    drop_headers,
    drop_share_secret,
    format_stored_error,
    read_created_at,
    read_system_prompt,
    read_usage,
    split_reverted,
)
from .tool_parts import ToolUse, read_tool_part


def convert_session(session: StoredSession, options: SampleOptions) -> Sample:
    """Convert a session into a sample.

    `trajectory` contains the conversation. `metadata` contains the rest: user messages without
    typed text, compaction summaries, and shell commands that the user ran.
    """
    return OpenCodeConversation(session=session, options=options).convert()


@dataclass(kw_only=True)
class OpenCodeConversation(Conversation):
    """A session's conversation while its messages are read."""

    session: StoredSession
    options: SampleOptions
    duration: float | None = 0.0
    _call_ids: set[str] = field(default_factory=set)
    _system: str | None = None

    def convert(self) -> Sample:
        """Read all messages and return the sample."""
        kept, self.reverted = split_reverted(self.session)
        if self.options.keep_reverted:
            kept = self.session.messages
        by_id = {text_or_none(message.info.get("id")): message for message in kept}
        asked: StoredMessage | None = None
        for message in kept:
            if message.info.get("role") == "user":
                asked = message
                self._take_user(message)
            elif message.info.get("role") == "assistant":
                parent = by_id.get(text_or_none(message.info.get("parentID")), asked)
                self._take_assistant(message, parent)
            else:
                self._skip_message(message, "neither of the user nor of the assistant")
        info = self.session.info
        # Some versions mark a compaction in the user's message only.
        compactions = sum(each["why"] == "compaction" for each in self.skipped)
        self.compactions = max(self.compactions, compactions)
        self.unknown_kinds = count_unknown_kinds(self.session)
        metadata = {
            "source": "opencode",
            "info": drop_share_secret(info),
            "parent_id": info.get("parentID") or None,
            "todo": self.session.todo,
            "stray_parts": [drop_container_ids(part) for part in self.session.stray_parts],
        }
        return self.to_sample(str(info["id"]), build_session_input(info), metadata)

    def compute_status(self) -> Status:
        """Return the status by the last call: some versions end a session with its tools."""
        last = self.last_turn
        if last is None or not self.messages or self.messages[-1].role == "user":
            return Status.ABORTED
        if last.error is not None or last.finish_reason == "tool-calls":
            return Status.ABORTED
        return Status.TRUNCATED if last.finish_reason == "length" else Status.COMPLETED

    def _skip_message(self, message: StoredMessage, why: str) -> None:
        parts = [drop_container_ids(part) for part in message.parts]
        self.skipped.append(
            {"id": text_or_none(message.info.get("id")), "why": why, "parts": parts}
        )

    def _take_user(self, message: StoredMessage) -> None:
        said: list[TextBlock | DataBlock] = []
        others = []
        for part in message.parts:
            block = _to_user_block(part, synthetic=self.options.synthetic)
            if block is None:
                others.append(drop_container_ids(part))
            else:
                said.append(block)
        if not said:
            compaction = any(part.get("type") == "compaction" for part in message.parts)
            self._skip_message(message, "compaction" if compaction else "nothing in it was typed")
            return
        info = message.info
        details: dict[str, Any] = {"id": text_or_none(info.get("id"))}
        if rest := collect_extra_info(info):
            details["info"] = rest
        if others:
            details["parts"] = others
        self.messages.append(
            Message(
                role="user",
                content=_join_opencode_content(said),
                timestamp=read_created_at(info),
                details=details,
            )
        )

    def _take_assistant(self, message: StoredMessage, asked: StoredMessage | None) -> None:
        info = message.info
        steps = split_steps(message.parts)
        if info.get("summary") is True:
            self.compactions += 1
            self._skip_message(message, "compaction summary")
            # The summary is not a part of the conversation. Its tokens are still counted.
            for number, step in enumerate(steps, start=1):
                call = self._build_model_call(
                    info, step, whole=len(steps) == 1, last=number == len(steps)
                )
                update = {"message_index": None, "purpose": "summary"}
                self.calls.append(call.model_copy(update=update))
            return
        # A shell command that the user ran is stored as a message of the agent: without tokens,
        # and as the answer to a message that OpenCode wrote.
        alone = len(steps) == 1 and bool(steps[0].tools) and not steps[0].started
        unpaid = read_usage(info.get("tokens"), None, version="") is None
        parts = asked.parts if asked is not None else []
        written = (part.get("type") == "text" and part.get("synthetic") for part in parts)
        if alone and unpaid and parts and all(written):
            for part in steps[0].tools:
                use = read_tool_part(part, call_id="", agent_message="")
                details = use.answer.details or {}
                kept = ("status", "exit_code", "started", "ended", "part_id")
                found = {"tool": use.call.name, "args": use.call.arguments}
                found |= {"output": use.answer.text}
                self.user_shell.append(found | {k: details[k] for k in kept if k in details})
            return
        text = read_system_prompt(info)
        if text and self._system is None:
            # The first prompt moves to the start. Since 1.0 none is stored.
            self._system = text
            self.messages.insert(0, Message(role="system", content=text))
            self.calls = [
                call.model_copy(update={"message_index": call.message_index + 1})
                if call.message_index is not None
                else call
                for call in self.calls
            ]
        time = dict_or_empty(info.get("time"))
        start, end = parse_epoch_ms(time.get("created")), parse_epoch_ms(time.get("completed"))
        if start is None or end is None:
            self.duration = None
        elif self.duration is not None:
            self.duration += (end - start) / 1000
        for number, step in enumerate(steps):
            self._take_step(info, step, number=number, of=len(steps))

    def _take_step(self, info: dict[str, Any], step: StepParts, *, number: int, of: int) -> None:
        last = number == of - 1
        message_id = text_or_none(info.get("id"))
        uses: list[ToolUse] = []
        for part in step.tools:
            # Some providers restart the numbers of calls in each answer.
            call_id = text_or_none(part.get("callID")) or str(part.get("id"))
            call_id = str(part.get("id")) if call_id in self._call_ids else call_id
            self._call_ids.add(call_id)
            uses.append(read_tool_part(part, call_id=call_id, agent_message=message_id))
        details = self._build_details(info, step, number, last=last)
        self.calls.append(self._build_model_call(info, step, whole=of == 1, last=last))
        self.messages.append(
            Message(
                role="assistant",
                content=_build_step_content(step, calls=bool(uses)),
                tool_calls=tuple(use.call for use in uses),
                reasoning="\n\n".join(step.reasoning) if step.reasoning else None,
                provider=text_or_none(info.get("providerID")),
                model=text_or_none(info.get("modelID")),
                timestamp=read_created_at(info),
                details=details,
            )
        )
        self.messages += [use.answer for use in uses]

    def _build_details(
        self, info: dict[str, Any], step: StepParts, number: int, *, last: bool
    ) -> dict[str, Any]:
        details: dict[str, Any] = {"id": text_or_none(info.get("id"))}
        if number:
            details["step"] = number
        if agent := info.get("agent") or info.get("mode"):
            details["agent"] = agent
        if number == 0:
            if rest := collect_extra_info(info):
                details["info"] = rest
            if (text := read_system_prompt(info)) and text != self._system:
                details["system"] = text
        if last and "error" in info:
            details["error"] = drop_headers(info["error"])
        if step.others:
            details["parts"] = step.others
        return details

    def _build_model_call(
        self, info: dict[str, Any], step: StepParts, *, whole: bool, last: bool
    ) -> ModelCall:
        version = str(self.session.info.get("version", ""))
        finish = step.finish or {}
        if step.finish is not None:
            usage = read_usage(finish.get("tokens"), finish.get("cost"), version=version)
        elif last:
            # A message has the tokens of its last step, but the cost of all its steps.
            cost = info.get("cost") if whole else None
            usage = read_usage(info.get("tokens"), cost, version=version)
        else:
            usage = None
        return ModelCall(
            model=text_or_none(info.get("modelID")),
            message_index=len(self.messages),
            finish_reason=text_or_none(info.get("finish") if last else None)
            or text_or_none(finish.get("reason")),
            usage=usage,
            error=format_stored_error(info.get("error")) if last else None,
        )


def _to_user_block(part: dict[str, Any], *, synthetic: bool) -> TextBlock | DataBlock | None:
    """Convert a part of a user message to a block; None if the user did not write it."""
    kind, text = part.get("type"), part.get("text")
    if kind in ("file", "subtask"):
        return DataBlock.model_validate(drop_container_ids(part))
    if kind != "text" or not isinstance(text, str) or part.get("ignored"):
        return None
    if part.get("synthetic") and not synthetic:
        return None
    return TextBlock(type="text", text=text) if text.strip() else None


OpenCodeBlocks = list[TextBlock | DataBlock]


def _join_opencode_content(said: OpenCodeBlocks) -> str | tuple[TextBlock | DataBlock, ...]:
    """Return blocks in order, with adjacent texts joined; a text alone is returned as such."""
    joined: OpenCodeBlocks = []
    for is_text, group in groupby(said, lambda block: isinstance(block, TextBlock)):
        blocks = list(group)
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        if len(texts) > 1:
            # The spaces around all of them stay.
            inner = [text.strip() for text in texts[1:-1] if text.strip()]
            texts = ["\n\n".join([texts[0].rstrip(), *inner, texts[-1].lstrip()])]
        joined += [TextBlock(type="text", text=text) for text in texts] if is_text else blocks
    found = [block for block in joined if isinstance(block, TextBlock)]
    if len(found) == 1:
        # Only a single text is trimmed: between files, spaces are part of the sentence.
        trimmed = TextBlock(type="text", text=found[0].text.strip())
        joined = [trimmed if block is found[0] else block for block in joined]
        if len(joined) == 1:
            return trimmed.text
    return tuple(joined)


def _build_step_content(
    step: StepParts, *, calls: bool
) -> str | tuple[TextBlock | DataBlock, ...] | None:
    if len(step.texts) == len(step.content):
        text = "\n\n".join(each for each in step.texts if each)
        return None if calls and not text else text
    blocks: OpenCodeBlocks = [
        TextBlock(type="text", text=each)
        if isinstance(each, str)
        else DataBlock.model_validate(drop_container_ids(each))
        for each in step.content
        if each
    ]
    return _join_opencode_content(blocks)
