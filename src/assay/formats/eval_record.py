"""Evaluation records of sessions: Gemini contents, tool events by turn, flat texts.

`turn` is the 1-based position in `request.contents` of the model turn that made a call. Turns are
merged first: consecutive messages of one side are one content.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import to_json

from assay.errors import AssayError, WireError
from assay.types import Message, Sample, Status, ToolCall, Trajectory

from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_sequence,
    expect_text,
    get_opening_messages,
    read_document,
    read_items,
    validate_wire,
)
from .eval_turns import EVENT_DETAIL_KEYS, TEXT_SEPARATOR, EvalTurn, EvalTurns

ResponseMode = Literal["final", "turn"]
"""Whether the response is the text after the last tool call, or the whole last turn."""

# Metadata of a sample that a record repeats, and that reading restores.
_PASSED_THROUGH_KEYS = (
    "parent_id",
    "skipped",
    "compactions",
    "user_shell",
    "reverted_messages",
    "subagents",
)
# Subagents inside subagents. Of deeper ones, a record contains only the id and the title.
_MAX_RECORD_DEPTH = 8
# Other keys come from other writers and are kept in `metadata`.
_EVAL_RECORD_KEYS = frozenset(
    """
    session_id title created request response intermediate_events prompt prompt_concat
    response_concat conversation_history generated_trajectory metadata
    """.split()
)
# Derived from the conversation when a record is written, so they are not kept when it is read.
_COMPUTED_KEYS = frozenset(
    """
    total_turns total_tools user_turns model_turns distinct_tools tool_errors turn_base
    response_mode response_precedes_tools finish_reason
    """.split()
)


@cache
def eval_record_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    path = Path(__file__).with_name("eval_record.schema.json")
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema


def to_eval_record(
    sample: Sample,
    *,
    response_mode: ResponseMode = "final",
    tool_names: Mapping[str, str] | None = None,
) -> Converted[dict[str, Any]]:
    """Return the record of a sample. `tool_names` maps tools to the names that checks use.

    Subagents in `metadata["subagents"]` are written as records inside this one.
    """
    return _write_record(sample, response_mode, tool_names or {}, depth=0)


def _write_record(
    sample: Sample, mode: ResponseMode, tool_names: Mapping[str, str], *, depth: int
) -> Converted[dict[str, Any]]:
    writer = EvalTurns(tool_names)
    for index, message in enumerate(sample.messages):
        writer.take(message, f"messages[{index}]")
    if sample.trajectory is not None and sample.trajectory.calls:
        writer.dropped.append(
            Dropped("trajectory.calls", "tokens and cost of model calls; left out")
        )
    record = _build_record(sample, writer, mode)
    stored = sample.metadata.get("subagents")
    for place, each in enumerate(stored if isinstance(stored, list) else ()):
        inner: Sample | None = None
        if depth < _MAX_RECORD_DEPTH and isinstance(each, dict) and "trajectory" in each:
            # Metadata is free-form: an entry that is not a sample stays in the metadata only.
            with suppress(AssayError, ValidationError, ValueError, TypeError, RecursionError):
                inner = Sample.from_dict(each)
        where = f"metadata.subagents[{place}]"
        if inner is not None:
            written = _write_record(inner, mode, tool_names, depth=depth + 1)
            record["metadata"]["subagents"][place]["record"] = written.value
            writer.dropped += [
                Dropped(f"{where}.{dropped.where}", dropped.what) for dropped in written.dropped
            ]
        elif isinstance(each, dict) and "trajectory" in each:
            writer.dropped.append(Dropped(where, "its conversation; left out"))
    return Converted(record, tuple(writer.dropped))


def _build_record(sample: Sample, writer: EvalTurns, mode: ResponseMode) -> dict[str, Any]:
    turns = writer.turns
    # The prompt is the last user turn; everything before it is history.
    asked = [place for place, turn in enumerate(turns) if turn.role == "user"]
    contents = [turn.content for turn in turns]
    response, early = _choose_record_response(turns, mode)
    candidates = (
        [] if response is None else [{"content": {"role": "model", "parts": [{"text": response}]}}]
    )
    legacy = []
    for event in writer.events:
        call, answer = event["function_call"], event["function_response"]["response"]
        output = answer.get("output", answer.get("error"))
        output = output if isinstance(output, str) else to_json(answer).decode()
        place = {"output": output, "turn": event["turn"]}
        legacy.append({"tool": call["name"], "args": call["args"], **place})
    created = sample.input.get("created")
    times = (message.timestamp for message in sample.messages if message.timestamp)
    return {
        "session_id": sample.id,
        "title": str(sample.input.get("title", "")),
        "created": created if isinstance(created, str) else next(times, None),
        "request": {"contents": contents},
        "response": {"candidates": candidates},
        "intermediate_events": writer.events,
        "prompt": turns[asked[-1]].text if asked else "",
        "prompt_concat": _join_role_texts(turns, "user"),
        "response_concat": _join_role_texts(turns, "model"),
        "conversation_history": contents[: asked[-1]] if asked else [],
        "generated_trajectory": legacy,
        "metadata": _build_record_metadata(sample, writer, mode, early=early),
    }


def _choose_record_response(turns: list[EvalTurn], mode: ResponseMode) -> tuple[str | None, bool]:
    # Also returns whether the model called tools after the text that counts as its response.
    if not turns or turns[-1].role != "model":
        return None, False
    last = turns[-1]
    if mode == "turn":
        return last.text, False
    if last.after_tools:
        return last.after_tools[-1], False
    return (last.texts[-1] if last.texts else ""), bool(last.texts)


def _join_role_texts(turns: list[EvalTurn], role: str) -> str:
    return TEXT_SEPARATOR.join(turn.text for turn in turns if turn.role == role and turn.text)


def _build_record_metadata(
    sample: Sample, writer: EvalTurns, mode: ResponseMode, *, early: bool
) -> dict[str, Any]:
    roles = [turn.role for turn in writer.turns]
    events = writer.events
    found = {
        "total_turns": len(roles),
        "total_tools": len(events),
        "user_turns": roles.count("user"),
        "model_turns": roles.count("model"),
        "distinct_tools": len({event["function_call"]["name"] for event in events}),
        "tool_errors": sum(event["is_error"] for event in events),
        "turn_base": "contents",
        "response_mode": mode,
        "finish_reason": sample.trajectory.termination_reason if sample.trajectory else None,
    }
    if early:
        found["response_precedes_tools"] = True
    for key in _PASSED_THROUGH_KEYS:
        if sample.metadata.get(key):
            found[key] = _summarize_passed_value(sample.metadata[key])
    kept = sample.metadata.get("eval_record")
    return {**kept, **found} if isinstance(kept, Mapping) else found


def _summarize_passed_value(value: Any) -> Any:
    # Whole conversations are elsewhere in the record; here their ids, titles and reasons suffice.
    if not isinstance(value, list):
        return value
    summary = []
    for each in value:
        if isinstance(each, dict) and ("trajectory" in each or "parts" in each):
            given = each.get("input")
            title = given.get("title") if isinstance(given, dict) and "trajectory" in each else None
            brief = {"id": each.get("id"), "why": each.get("why"), "title": title}
            each = {key: text for key, text in brief.items() if text}
        summary.append(each)
    return summary


def from_eval_record(record: Mapping[str, Any]) -> Sample:
    """Read the sample of a record, as far as a record contains it.

    Reads records whose `turn` counts contents, as written here, and records that count model
    turns or name the user's content. Raises `WireError` for anything else.
    """
    return _read_record(record, depth=0)


def _read_record(record: Mapping[str, Any], *, depth: int) -> Sample:
    data = read_document(record, "record")
    request = expect_mapping(data.get("request"), "request")
    contents = read_items(request.get("contents"), "request.contents", _read_record_content)
    metadata = expect_mapping(data.get("metadata", {}), "metadata")
    response = _read_response_text(data)
    if response is not None and (not contents or contents[-1][0] == "user"):
        # Other writers do not repeat the answer in the request.
        contents.append(("model", response))
    early = metadata.get("response_precedes_tools") is True
    if early and response is not None and contents and contents[-1][1].endswith(response):
        # The text before the tool calls already contains it.
        response = None
    by_turn = _group_events_by_turn(data, [role for role, _ in contents], metadata)
    messages: list[Message] = []
    for place, (role, text) in enumerate(contents):
        if role == "user":
            messages.append(Message(role="user", content=text))
            continue
        final = response if place == len(contents) - 1 else None
        messages += _build_model_messages(text, by_turn.get(place, []), final)
    found = _build_record_sample(data, metadata, messages)
    stored = found.metadata.get("subagents")
    if isinstance(stored, list):
        stored = found.metadata["subagents"] = list(stored)
        # The summary of a subagent is replaced by its sample, if the record contains it.
        for place, entry in enumerate(stored):
            inner = entry.get("record") if isinstance(entry, Mapping) else None
            if inner is not None and depth == _MAX_RECORD_DEPTH:
                message = f"subagents are nested more than {_MAX_RECORD_DEPTH} deep"
                raise WireError(message, where="metadata")
            if inner is not None:
                stored[place] = _read_record(inner, depth=depth + 1).to_dict()
    return found


def _read_record_content(value: object, where: str) -> tuple[str, str]:
    content = expect_mapping(value, where)
    role = content.get("role")
    if role not in ("user", "model"):
        raise WireError(f"the role {role!r} is neither 'user' nor 'model'", where=f"{where}.role")
    texts = read_items(
        content.get("parts"),
        f"{where}.parts",
        lambda part, at: expect_text(expect_mapping(part, at).get("text"), f"{at}.text"),
    )
    return str(role), TEXT_SEPARATOR.join(texts)


def _group_events_by_turn(
    data: Mapping[str, Any], roles: list[str], metadata: Mapping[str, Any]
) -> dict[int, list[Mapping[str, Any]]]:
    where = "intermediate_events"
    events = read_items(data.get(where, []), where, expect_mapping)
    turns = [event.get("turn") for event in events]
    places = _locate_event_turns(turns, roles, known=metadata.get("turn_base") == "contents")
    found: dict[int, list[Mapping[str, Any]]] = {}
    for event, place in zip(events, places, strict=True):
        found.setdefault(place, []).append(event)
    return found


def _locate_event_turns(turns: list[Any], roles: list[str], *, known: bool) -> list[int]:
    # Writers number turns in three ways: by content, by model turn, or by the user's content.
    # The first reading that fits all events is used.
    models = [place for place, role in enumerate(roles) if role == "model"]
    whole = [turn for turn in turns if type(turn) is int]
    if len(whole) == len(turns):
        place_of = set(models)
        if all(turn - 1 in place_of for turn in whole):
            return [turn - 1 for turn in whole]
        if not known and all(0 < turn <= len(models) for turn in whole):
            return [models[turn - 1] for turn in whole]
        if not known and all(turn in place_of for turn in whole):
            return whole
    fitting = {place + 1 for place in models}
    wrong = next((n for n, t in enumerate(turns) if type(t) is not int or t not in fitting), 0)
    raise WireError(
        f"turn {turns[wrong]!r} is not a turn of the model",
        where=f"intermediate_events[{wrong}].turn",
        hint="number the turns by their position in `request.contents`, from 1",
    )


def _read_response_text(data: Mapping[str, Any]) -> str | None:
    candidates = expect_mapping(data.get("response", {}), "response").get("candidates")
    if not candidates:
        return None
    where = "response.candidates[0]"
    first = expect_mapping(expect_sequence(candidates, "response.candidates")[0], where)
    content = expect_mapping(first.get("content"), f"{where}.content")
    return _read_record_content({"role": "model", **content}, f"{where}.content")[1]


def _build_model_messages(
    text: str, events: list[Mapping[str, Any]], final: str | None
) -> list[Message]:
    # `final` becomes a message of its own, so that the response is the last message.
    before = text
    if final is not None:
        before = text.removesuffix(final)
        # It counts only as a whole paragraph, not as the tail of a longer word.
        whole = before == text or not before or before[-1].isspace()
        before = before.removesuffix(TEXT_SEPARATOR) if whole else text
    # The calls of one step were made in one answer of the model, so they share a message.
    groups: list[list[Mapping[str, Any]]] = []
    for event in events:
        step = event.get("step")
        if groups and step is not None and groups[-1][0].get("step") == step:
            groups[-1].append(event)
        else:
            groups.append([event])
    messages: list[Message] = []
    for group in groups:
        messages += _build_step_messages(group, None if messages else before or None)
    if not events and (before or final is None):
        messages.append(Message(role="assistant", content=before))
    if final is not None:
        messages.append(Message(role="assistant", content=final))
    return messages


def _build_step_messages(events: list[Mapping[str, Any]], text: str | None) -> list[Message]:
    calls, answers = [], []
    for event in events:
        where = "intermediate_events"
        call = expect_mapping(event.get("function_call"), f"{where}[].function_call")
        given = {
            "id": event.get("call_id"),
            "name": call.get("name"),
            "arguments": call.get("args"),
        }
        calls.append(validate_wire(ToolCall, given, f"{where}[].function_call"))
        if event.get("status") != "unanswered":
            answers.append(_read_event_answer(event, calls[-1]))
    message_id, step = events[0].get("message_id"), str(events[0].get("step") or "")
    details: dict[str, Any] = {} if message_id is None else {"id": message_id}
    number = step.rpartition("#")[2]
    if message_id is not None and step != message_id and number.isdecimal():
        details["step"] = int(number)
    fields = {"role": "assistant", "content": text, "tool_calls": calls, "details": details or None}
    return [validate_wire(Message, fields, "intermediate_events"), *answers]


def _read_event_answer(event: Mapping[str, Any], call: ToolCall) -> Message:
    where = "intermediate_events[].function_response"
    answer = expect_mapping(event.get("function_response"), where)
    response = expect_mapping(answer.get("response", {}), f"{where}.response")
    details = {key: event[key] for key in EVENT_DETAIL_KEYS if event.get(key) is not None}
    details["failed"] = "error" in response and "output" not in response
    text = response.get("error" if details["failed"] else "output")
    if not isinstance(text, str) or len(response) != 1:
        details["response"] = dict(response)
        text = to_json(dict(response)).decode()
    data = {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": text}
    return validate_wire(Message, {**data, "details": details}, where)


def _build_record_sample(
    data: Mapping[str, Any], metadata: Mapping[str, Any], messages: list[Message]
) -> Sample:
    kept = {key: metadata[key] for key in _PASSED_THROUGH_KEYS if key in metadata}
    rest = {key: value for key, value in data.items() if key not in _EVAL_RECORD_KEYS}
    rest |= {
        k: v
        for k, v in metadata.items()
        if k not in _COMPUTED_KEYS and k not in _PASSED_THROUGH_KEYS
    }
    if rest:
        kept["eval_record"] = rest
    reason = metadata.get("finish_reason")
    answered = bool(messages) and messages[-1].role != "user"
    fields = {
        "id": expect_text(data.get("session_id"), "session_id"),
        "input": {key: data[key] for key in ("title", "created") if data.get(key) is not None},
        "prompt": get_opening_messages(messages),
        "trajectory": Trajectory(
            messages=messages,
            termination_reason=reason if isinstance(reason, str) else None,
            terminated=answered,
        ),
        "status": Status.COMPLETED if answered else Status.ABORTED,
        "metadata": kept,
    }
    return validate_wire(Sample, fields, "record")
