"""Rows for Vertex's evaluation service: one sample each, with every tool call of every turn.

The rows have the SDK's flat layout without `request`, which would make the SDK ignore everything
else and drop all tool calls.
"""

import json
from collections.abc import Mapping
from typing import Any

from assay.errors import ConfigError, WireError
from assay.types import Message, Sample, Status, Trajectory

from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_optional_text,
    expect_sequence,
    expect_text,
    get_opening_messages,
    make_storable,
    read_document,
    read_items,
    validate_wire,
)
from .eval_record import ResponseMode
from .eval_turns import EvalTurns
from .gemini import from_gemini
from .vertex_events import (
    AgentDataReader,
    AgentHistory,
    read_event,
    to_session_message,
)

# Present in every row: the SDK reads a key that only some rows have as NaN in the others.
VERTEX_KEYS = (
    "session_id",
    "title",
    "created",
    "instruction",
    "prompt",
    "response",
    "reference",
    "conversation_history",
    "intermediate_events",
    "agent_data",
    "metadata",
)


def to_vertex(
    sample: Sample,
    *,
    response_mode: ResponseMode = "final",
    max_output_chars: int | None = None,
    reasoning: bool = True,
) -> Converted[dict[str, Any]]:
    """Return the row of a sample that ends with the agent's answer. Raises `WireError` otherwise.

    Tool outputs longer than `max_output_chars` are cut, and without `reasoning` the agent's
    reasoning is omitted; both are reported as dropped.
    """
    if max_output_chars is not None and max_output_chars < 1:
        raise ConfigError(f"max_output_chars={max_output_chars} is less than 1", where="to_vertex")
    turns = EvalTurns({})
    for index, message in enumerate(sample.messages):
        turns.take(message, f"messages[{index}]")
    # The service generates an answer for a row without one, and would judge that instead.
    asked = [place for place, turn in enumerate(turns.turns) if turn.role == "user"]
    if not asked or turns.turns[-1].role != "model":
        missing = "no user message to answer" if not asked else "no answer to the last user message"
        raise WireError(
            f"the sample has {missing}, so it cannot be judged",
            where=f"sample {sample.id}",
            hint="exclude the session",
        )
    history = AgentHistory(max_output_chars, reasoning)
    history.add_sample(sample)
    dropped = list(history.dropped)
    if sample.trajectory is not None and sample.trajectory.calls:
        dropped.append(Dropped("trajectory.calls", "tokens and cost of model calls; left out"))
    row = _build_vertex_row(sample, turns, history, response_mode)
    # The prompt is the last user turn; everything before it is history.
    row["prompt"] = turns.turns[asked[-1]].content
    row["conversation_history"] = [turn.content for turn in turns.turns[: asked[-1]]]
    return Converted({key: row[key] for key in VERTEX_KEYS}, tuple(dropped))


def _build_vertex_row(
    sample: Sample, turns: EvalTurns, history: AgentHistory, mode: ResponseMode
) -> dict[str, Any]:
    last = turns.turns[-1]
    texts = last.after_tools or last.texts
    response = last.text if mode == "turn" else texts[-1] if texts else ""
    created = sample.input.get("created")
    truth = sample.ground_truth
    roles = [turn.role for turn in turns.turns]
    return {
        "session_id": sample.id,
        "title": str(sample.input.get("title", "")),
        "created": created if isinstance(created, str) else None,
        "instruction": "\n\n".join(history.instruction),
        "response": {"role": "model", "parts": [{"text": response}]},
        "reference": truth if isinstance(truth, str) and truth else None,
        "intermediate_events": _collect_intermediate_events(history.turns, mode, response),
        "agent_data": history.to_agent_data(),
        "metadata": {
            "source": str(sample.metadata.get("source", "unknown")),
            "status": str(sample.status),
            "finish_reason": sample.trajectory.termination_reason if sample.trajectory else None,
            "response_mode": mode,
            "total_turns": len(roles),
            "user_turns": roles.count("user"),
            "model_turns": roles.count("model"),
            "total_tools": len(turns.events),
            "tool_errors": sum(event["is_error"] for event in turns.events),
        },
    }


def _collect_intermediate_events(
    turns: list[list[dict[str, Any]]], mode: ResponseMode, response: str
) -> list[dict[str, Any]]:
    # Without prompt and response, which the service would otherwise judge twice.
    events = []
    place = len(turns) - 1
    last = turns[-1] if turns else []
    for number, event in enumerate(last):
        if event["author"] == "user":
            continue
        parts = event["content"]["parts"]
        final = number == len(last) - 1
        if mode == "turn" or final:
            # In the last event, only text that the response repeats.
            parts = [
                part
                for part in parts
                if "text" not in part
                or part.get("thought")
                or not (part["text"].strip() in response if final else part["text"].strip())
            ]
        if parts:
            written = {"event_id": f"{place}.{number}", "author": event["author"]}
            if "event_time" in event:
                written["creation_timestamp"] = event["event_time"]
            events.append({**written, "content": {**event["content"], "parts": parts}})
    return events


def from_vertex(row: Mapping[str, Any]) -> Sample:
    """Read the sample of a flat row: from `agent_data`, else from prompt, events and response.

    Raises `WireError` for other rows.
    """
    data = read_document(row, "row")
    if "request" in data:
        raise WireError(
            "the row has the Gemini layout, in which the SDK ignores tool calls",
            where="request",
            hint="read an evaluation record with `from_eval_record`",
        )
    subagents: list[Sample] = []
    if data.get("agent_data"):
        reader = AgentDataReader(
            expect_mapping(_parse_if_json(data["agent_data"], "agent_data"), "agent_data")
        )
        messages, subagents = reader.messages, reader.subagents()
    else:
        messages = _read_columns(data)
    instruction = data.get("instruction")
    if instruction and (not messages or messages[0].role != "system"):
        text = expect_text(instruction, "instruction")
        messages.insert(0, Message(role="system", content=text))
    return _build_vertex_sample(data, messages, subagents)


def _parse_if_json(value: object, where: str) -> object:
    # The SDK accepts an object or its JSON text.
    if not isinstance(value, str):
        return value
    try:
        return make_storable(json.loads(value))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the value is not JSON: {error}", where=where) from None


def _read_columns(data: Mapping[str, Any]) -> list[Message]:
    history = _parse_if_json(data.get("conversation_history") or [], "conversation_history")
    contents = read_items(history, "conversation_history", _to_vertex_content)
    contents.append(_to_vertex_content(data.get("prompt"), "prompt", role="user"))
    messages = [
        to_session_message(message, "agent", None)
        for each in contents
        for message in from_gemini([{"role": "user", **each}])
    ]
    events = expect_sequence(data.get("intermediate_events") or [], "intermediate_events")
    for n, event in enumerate(events):
        fields = expect_mapping(event, f"intermediate_events[{n}]")
        author = str(fields.get("author") or "agent")
        messages += read_event(fields, author, f"intermediate_events[{n}]")
    answer = {"role": "model", **_to_vertex_content(data.get("response"), "response", role="model")}
    return messages + [
        to_session_message(message, "agent", None) for message in from_gemini([answer])
    ]


def _to_vertex_content(value: object, where: str, *, role: str = "user") -> dict[str, Any]:
    if isinstance(value, str):
        return {"role": role, "parts": [{"text": value}]}
    content = dict(expect_mapping(value, where))
    if isinstance(content.get("content"), str):
        return {"role": content.get("role", role), "parts": [{"text": content["content"]}]}
    return content


def _build_vertex_sample(
    data: Mapping[str, Any], messages: list[Message], subagents: list[Sample]
) -> Sample:
    given = expect_mapping(data.get("metadata") or {}, "metadata")
    metadata: dict[str, Any] = {"source": given["source"]} if "source" in given else {}
    rest = {key: value for key, value in data.items() if key not in VERTEX_KEYS}
    if rest:
        metadata["vertex"] = rest
    if subagents:
        metadata["subagents"] = [sample.to_dict() for sample in subagents]
    reason = given.get("finish_reason")
    status = given.get("status")
    fields = {
        "id": expect_optional_text(data.get("session_id"), "session_id") or "",
        "input": {key: data[key] for key in ("title", "created") if data.get(key)},
        "prompt": get_opening_messages(messages),
        "ground_truth": data.get("reference"),
        "trajectory": Trajectory(
            messages=messages,
            termination_reason=reason if isinstance(reason, str) else None,
            terminated=status == Status.COMPLETED,
            truncated=status == Status.TRUNCATED,
        ),
        "status": status if status in list(Status) else Status.COMPLETED,
        "metadata": metadata,
    }
    return validate_wire(Sample, fields, "row")
