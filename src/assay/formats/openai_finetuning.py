"""Rows for OpenAI's fine-tuning: supervised, preference and reinforcement. Arguments are text.

OpenAI requires an id for every call, and an answer to every call before the next turn. Keys that
the schema does not name are dropped, and reported.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample

from .agent_turns import (
    AgentTurns,
    build_training_sample,
    get_prompt_messages,
    split_agent_turns,
    split_training_turns,
)
from .conversion import Converted, Dropped, expect_mapping, expect_sequence, read_items
from .open_calls import OpenCalls
from .openai_chat import from_openai_chat, to_openai_chat
from .tool_schemas import find_tools

# The keys that OpenAI's schema allows; others are dropped and reported.
_KEYS_BY_ROLE = {
    "system": ("role", "content", "name"),
    "user": ("role", "content", "name"),
    "assistant": ("role", "content", "name", "tool_calls", "weight"),
    "tool": ("role", "content", "tool_call_id"),
}


def to_openai_sft(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `messages` and `tools`. Foreign assistant turns have `weight` 0."""
    dropped: list[Dropped] = []
    turns, tools = split_training_turns(sample, dropped)
    messages = _write_finetuning_messages([*turns.context, *turns.made], dropped)
    for place, message in enumerate(messages):
        own = place - len(turns.context) in turns.own
        if message["role"] == "assistant" and not own:
            message["weight"] = 0
    return Converted({"messages": messages, **_build_tool_columns(tools, messages)}, tuple(dropped))


def to_openai_dpo(chosen: Sample, rejected: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `input`, `preferred_output` and `non_preferred_output`."""
    dropped: list[Dropped] = []
    better, worse = split_agent_turns(chosen), split_agent_turns(rejected)
    context = _write_finetuning_messages(better.context, dropped)
    if context != _write_finetuning_messages(worse.context, []):
        raise WireError("the two answers are not to the same context", where=f"sample {chosen.id}")
    row = {
        "input": {"messages": context, **_build_tool_columns(find_tools(chosen), context)},
        "preferred_output": _write_only_turn(better, chosen, dropped),
        "non_preferred_output": _write_only_turn(worse, rejected, dropped),
    }
    return Converted(row, tuple(dropped))


def to_openai_rft(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `messages`, `tools`, and `reference_answer` and `sample_id`."""
    dropped: list[Dropped] = []
    asked = get_prompt_messages(sample)
    if not asked or asked[-1].role != "user":
        raise WireError("the prompt does not end with the user", where=f"sample {sample.id}")
    messages = _write_finetuning_messages(asked, dropped)
    row = {
        "messages": messages,
        **_build_tool_columns(find_tools(sample), messages),
        "reference_answer": sample.ground_truth,
        "sample_id": sample.id,
    }
    return Converted(row, tuple(dropped))


def from_openai_finetuning(row: Mapping[str, Any]) -> list[Sample]:
    """Read the samples of a row: one, or the preferred and the rejected one.

    The agent's turns begin at the first assistant turn whose weight is not 0. Raises `WireError`
    for other rows.
    """
    data = expect_mapping(row, "row")
    if "input" in data:
        given = expect_mapping(data["input"], "input")
        prompt = from_openai_chat(expect_sequence(given.get("messages"), "input.messages"))
        outputs = [data.get("preferred_output"), data.get("non_preferred_output")]
        answers = [from_openai_chat(expect_sequence(each, "output")) for each in outputs]
        return [_build_finetuning_sample(given, prompt, answer) for answer in answers]
    rows = read_items(data.get("messages"), "messages", expect_mapping)
    trained = (
        place
        for place, each in enumerate(rows)
        if each.get("role") == "assistant" and each.get("weight", 1) != 0
    )
    start = next(trained, len(rows))
    messages = from_openai_chat([{k: v for k, v in each.items() if k != "weight"} for each in rows])
    return [_build_finetuning_sample(data, messages[:start], messages[start:])]


def _build_finetuning_sample(
    data: Mapping[str, Any], prompt: list[Message], answer: list[Message]
) -> Sample:
    about = {
        "id": str(data.get("sample_id") or ""),
        "ground_truth": data.get("reference_answer"),
    }
    return build_training_sample(about, prompt, answer, data.get("tools"))


def _build_tool_columns(
    tools: list[dict[str, Any]], messages: list[dict[str, Any]]
) -> dict[str, Any]:
    if not tools:
        return {}
    at_once = any(len(each.get("tool_calls", ())) > 1 for each in messages)
    return {"tools": tools, "parallel_tool_calls": True} if at_once else {"tools": tools}


def _write_only_turn(
    turns: AgentTurns, sample: Sample, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    if len(turns.made) != 1:
        raise WireError(
            "the agent took several turns, where a preference is between single messages",
            where=f"sample {sample.id}",
        )
    turns.report_trailing_messages(dropped)
    return _write_finetuning_messages(turns.made, dropped)


def _write_finetuning_messages(
    messages: Sequence[Message], dropped: list[Dropped]
) -> list[dict[str, Any]]:
    converted = to_openai_chat(_add_call_ids(messages))
    dropped += converted.dropped
    rows = [
        _keep_allowed_keys(each, f"messages[{n}]", dropped)
        for n, each in enumerate(converted.value)
    ]
    # OpenAI requires each call to be answered before the next turn.
    waiting: set[str] = set()
    for place, message in enumerate(rows):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                raise WireError(
                    "the tool message answers no preceding call", where=f"messages[{place}]"
                )
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            raise WireError("a preceding tool call is not answered", where=f"messages[{place}]")
        waiting = {call["id"] for call in message.get("tool_calls", ())}
    return rows


def _keep_allowed_keys(wire: dict[str, Any], where: str, dropped: list[Dropped]) -> dict[str, Any]:
    role = wire["role"]
    if role == "developer":
        dropped.append(Dropped(f"{where}.role", "`developer` is written as `system`"))
        role = "system"
    if role not in _KEYS_BY_ROLE:
        raise WireError(f"fine-tuning does not accept {role!r} messages", where=where)
    content = wire.get("content")
    for n, part in enumerate(content if isinstance(content, list) else ()):
        # Each of OpenAI's parts has its value under the name of its type.
        if part["type"] not in part:
            raise WireError(
                f"OpenAI has no such `{part['type']}` part", where=f"{where}.content[{n}]"
            )
    row: dict[str, Any] = {"role": role}
    for key, value in wire.items():
        if key in _KEYS_BY_ROLE[role] and key != "role":
            row[key] = value
        # The name of a tool message repeats that of the call, so nothing is dropped.
        elif key not in ("role", "name") and value is not None:
            dropped.append(Dropped(f"{where}.{key}", f"no place for `{key}`; left out"))
    if row.get("content") is None and not row.get("tool_calls"):
        row["content"] = ""
    return row


def _add_call_ids(messages: Sequence[Message]) -> list[Message]:
    # Rollouts of models without native tool calls have no ids.
    found: list[Message] = []
    open_ids: OpenCalls[str] = OpenCalls()
    for place, message in enumerate(messages):
        changed: dict[str, Any] = {}
        if message.tool_calls:
            calls = tuple(
                call if call.id else call.model_copy(update={"id": f"call_{place}_{n}"})
                for n, call in enumerate(message.tool_calls)
            )
            open_ids = OpenCalls()
            for call in calls:
                open_ids.add(call.id, call.id or "")
            changed["tool_calls"] = calls
        elif message.role == "tool":
            answered = open_ids.take(message.tool_call_id or None)
            changed["tool_call_id"] = message.tool_call_id or answered
        found.append(message.model_copy(update=changed) if changed else message)
    return found
