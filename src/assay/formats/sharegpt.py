"""Converts ShareGPT conversations: `human`, `gpt`, `function_call`, `observation`.

Written for LLaMA-Factory, which drops a conversation unless both sides take turns: `human` or
`observation`, then `gpt` or `function_call`. A call is the JSON of its name and arguments, several
calls at once a list of them; text beside a call comes first, with the call in `<tool_call>` marks.
Trainers learn from every `gpt` and `function_call` turn.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, ToolCall

from .agent_turns import build_training_sample, flatten_to_text, split_training_turns
from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_sequence,
    expect_text,
    get_opening_messages,
    report_extras,
    report_unsupported_fields,
    validate_wire,
    write_plain_arguments,
)
from .tool_schemas import write_tools_json

_CALL_OPEN_TAG, _CALL_CLOSE_TAG = "<tool_call>", "</tool_call>"
# Between the answers to parallel calls: LLaMA-Factory's own separator for OpenAI's messages.
_ANSWER_SEPARATOR = "\n</tool_response>\n<tool_response>\n"
# LLaMA-Factory searches a `function_call` for these marks, even inside arguments, so they are
# escaped there.
_TEMPLATE_MARK = re.compile(r"<(?=/?(?:tool_call|think|seed:think)>|\|)|◁")

# Also reads `user`, `assistant` and `tool`, which some datasets mix in.
_SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}
_SPEAKERS = {
    "system": "system",
    "developer": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "observation",
}


def to_sharegpt(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `conversations`, and `tools` as JSON text."""
    dropped: list[Dropped] = []
    turns, tools = split_training_turns(sample, dropped, allow_foreign=False)
    messages = flatten_to_text([*turns.context, *turns.made])
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        if message.reasoning is not None:
            dropped.append(Dropped(f"{where}.reasoning", "no place for `reasoning`; left out"))
        if message.role == "developer":
            dropped.append(Dropped(f"{where}.role", "`developer` is written as `system`"))
        report_unsupported_fields(message, where, dropped)
        report_extras(message.__pydantic_extra__, "", where, dropped)
    taken = _merge_turns(messages, dropped)
    for before, turn in pairwise(taken):
        # Turns have no ids, so answers are matched to calls by their order.
        calls = before.messages[-1].tool_calls
        # Reversed: of calls with the same id, the first one counts.
        places = {calls[n].id: n for n in reversed(range(len(calls)))}
        if turn.speaker == "observation" and all(m.tool_call_id in places for m in turn.messages):
            turn.messages.sort(key=lambda message: places[message.tool_call_id])
    written = [_write_sharegpt_turn(turn, dropped) for turn in taken]
    return Converted({"conversations": written, "tools": write_tools_json(tools)}, tuple(dropped))


def from_sharegpt(row: Mapping[str, Any]) -> Sample:
    """Read the sample of a row. Raises `WireError` for an invalid conversation."""
    data = expect_mapping(row, "row")
    messages: list[Message] = []
    for n, turn in enumerate(expect_sequence(data.get("conversations"), "conversations")):
        _read_sharegpt_turn(
            expect_mapping(turn, f"conversations[{n}]"), f"conversations[{n}]", messages
        )
    prompt = get_opening_messages(messages)
    about = {"id": str(data.get("id") or "")}
    return build_training_sample(about, prompt, messages[len(prompt) :], data.get("tools"))


@dataclass
class _ShareGptTurn:
    speaker: str
    start: int
    messages: list[Message]

    @property
    def text(self) -> str:
        return "\n\n".join(each.text for each in self.messages if each.text)


def _merge_turns(messages: Sequence[Message], dropped: list[Dropped]) -> list[_ShareGptTurn]:
    # LLaMA-Factory silently drops a conversation whose sides do not alternate, so consecutive
    # messages of one side are joined, and any other order is refused.
    turns: list[_ShareGptTurn] = []
    for n, message in enumerate(messages):
        where, speaker = f"messages[{n}]", _SPEAKERS.get(message.role)
        if speaker is None:
            raise WireError(f"ShareGPT has no turn for the role {message.role!r}", where=where)
        if message.tool_calls and speaker == "gpt":
            speaker = "function_call"
        last = turns[-1] if turns else None
        before = None if last is None else last.speaker
        if problem := _find_order_problem(speaker, before):
            raise WireError(problem, where=where)
        # Text and the call after it are one turn; a call never joins another call's turn.
        joins = speaker == before != "function_call" or (before, speaker) == (
            "gpt",
            "function_call",
        )
        if last is None or not joins:
            turns.append(_ShareGptTurn(speaker, n, [message]))
            continue
        last.speaker = speaker
        last.messages.append(message)
        if speaker != "observation":
            dropped.append(Dropped(where, "follows a message of the same side; joined with it"))
    return turns


def _find_order_problem(speaker: str, before: str | None) -> str | None:
    # Returns the reason why LLaMA-Factory would drop the conversation.
    if speaker == "system":
        return None if before in (None, "system") else "a system message is not at the start"
    if before in (None, "system"):
        return None if speaker == "human" else "the conversation does not begin with the user"
    if speaker == "observation":
        answers = before in ("function_call", "observation")
        return None if answers else "a tool's answer follows no call"
    if (before, speaker) == ("observation", "human"):
        return "the user speaks after a tool, before the model does"
    if before == "function_call" and speaker != "human":
        return "a preceding tool call is not answered"
    return None


def _write_sharegpt_turn(turn: _ShareGptTurn, dropped: list[Dropped]) -> dict[str, Any]:
    if turn.speaker == "observation":
        return {
            "from": "observation",
            "value": _ANSWER_SEPARATOR.join(m.text for m in turn.messages),
        }
    if turn.speaker != "function_call":
        return {"from": turn.speaker, "value": turn.text}
    where = f"messages[{turn.start + len(turn.messages) - 1}]"
    calls = [
        {
            "name": call.name,
            "arguments": write_plain_arguments(call, f"{where}.tool_calls[{n}]", dropped),
        }
        for n, call in enumerate(turn.messages[-1].tool_calls)
    ]
    value = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
    value = _TEMPLATE_MARK.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    if turn.text:
        if _CALL_OPEN_TAG in turn.text:
            raise WireError(f"the text beside a call contains `{_CALL_OPEN_TAG}`", where=where)
        value = f"{turn.text}\n{_CALL_OPEN_TAG}{value}{_CALL_CLOSE_TAG}"
    return {"from": "function_call", "value": value}


def _read_sharegpt_turn(turn: Mapping[str, Any], where: str, messages: list[Message]) -> None:
    # A call belongs to the text before it, an answer to the first open call.
    speaker = turn.get("from", turn.get("role"))
    value = expect_text(turn.get("value", turn.get("content")), f"{where}.value")
    if speaker == "function_call":
        text, calls = _read_sharegpt_calls(value, where, len(messages))
        last = messages[-1] if messages else None
        if last is not None and last.role == "assistant" and not last.tool_calls and not text:
            messages[-1] = last.model_copy(update={"tool_calls": calls})
        else:
            messages.append(Message(role="assistant", content=text, tool_calls=calls))
        return
    if speaker not in _SHAREGPT_ROLES:
        raise WireError(
            f"{speaker!r} is not a speaker; use one of {', '.join(_SHAREGPT_ROLES)}",
            where=f"{where}.from",
        )
    role = _SHAREGPT_ROLES[speaker]
    if role != "tool":
        messages.append(validate_wire(Message, {"role": role, "content": value}, where))
        return
    # The calls of the last message that is not an answer, without those already answered.
    answered = 0
    while answered < len(messages) and messages[-1 - answered].role == "tool":
        answered += 1
    asked = messages[-1 - answered].tool_calls if answered < len(messages) else ()
    waiting = asked[answered:]
    answers = value.split(_ANSWER_SEPARATOR)
    for n, answer in enumerate(answers if len(answers) <= len(waiting) else [value]):
        fields: dict[str, Any] = {"role": role, "content": answer}
        if waiting:
            fields |= {"tool_call_id": waiting[n].id, "name": waiting[n].name}
        messages.append(validate_wire(Message, fields, where))


def _read_sharegpt_calls(
    value: str, where: str, place: int
) -> tuple[str | None, tuple[ToolCall, ...]]:
    text: str | None = None
    if value.endswith(_CALL_CLOSE_TAG):
        text, _, value = value.removesuffix(_CALL_CLOSE_TAG).partition(_CALL_OPEN_TAG)
        text = text.removesuffix("\n") or None
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        raise WireError(
            "the value is not the JSON of a tool call", where=f"{where}.value"
        ) from None
    listed = given if isinstance(given, list) else [given]
    calls = tuple(
        validate_wire(ToolCall, {"id": f"call_{place}_{n}", **expect_mapping(each, where)}, where)
        for n, each in enumerate(listed)
    )
    return text, calls
