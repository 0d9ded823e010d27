"""Rows for Vertex's evaluation service: one sample each, with every tool call of every turn.

The rows are of the SDK's flat layout. There is no `request` in them: it would make the SDK read
nothing else, and drop all tool calls.
"""

import json
from collections.abc import Mapping
from typing import Any

from assay.errors import ConfigError, WireError
from assay.types import Message, Sample, Status, Trajectory

from .conversion import (
    Converted,
    Lost,
    mapping_at,
    optional_text_at,
    sequence_at,
    storable,
    text_at,
    validated,
)
from .eval_record import ResponseMode
from .eval_turns import Turn, Turns
from .gemini import from_gemini
from .vertex_events import AgentHistory, TurnsReader, noted, opening, read_event

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
"""Of every row: the SDK reads a key that only some rows have as NaN in the others."""


def to_vertex(
    sample: Sample,
    *,
    response_mode: ResponseMode = "final",
    max_output_chars: int | None = None,
    reasoning: bool = True,
) -> Converted[dict[str, Any]]:
    """The row of a sample whose last word is the agent's. Raises `WireError` for any other.

    The service would put words into the mouth of an agent that did not answer, and judge them.
    Texts of tools longer than `max_output_chars` are cut, and without `reasoning` what the agent
    thought is left out; either is reported as lost.
    """
    if max_output_chars is not None and max_output_chars < 1:
        raise ConfigError(f"max_output_chars={max_output_chars} is less than 1", where="to_vertex")
    turns = Turns({})
    for index, message in enumerate(sample.messages):
        turns.take(message, f"messages[{index}]")
    asked = [place for place, turn in enumerate(turns.turns) if turn.role == "user"]
    if not asked or turns.turns[-1].role != "model":
        what = "no user message to answer" if not asked else "no answer to the last user message"
        raise WireError(
            f"there is {what}, so nothing can be judged",
            where=f"sample {sample.id}",
            hint="leave the session out",
        )
    history = AgentHistory(max_output_chars, reasoning)
    history.take_sample(sample)
    lost = list(history.lost)
    if sample.trajectory is not None and sample.trajectory.calls:
        lost.append(Lost("trajectory.calls", "what each model call consumed; left out"))
    row = _row(sample, turns, history, response_mode)
    row["prompt"] = turns.turns[asked[-1]].content
    row["conversation_history"] = [turn.content for turn in turns.turns[: asked[-1]]]
    return Converted({key: row[key] for key in VERTEX_KEYS}, tuple(lost))


def _row(sample: Sample, turns: Turns, history: AgentHistory, mode: ResponseMode) -> dict[str, Any]:
    response = _response(turns.turns[-1], mode)
    created = sample.input.get("created")
    truth = sample.ground_truth
    return {
        "session_id": sample.id,
        "title": str(sample.input.get("title", "")),
        "created": created if isinstance(created, str) else None,
        "instruction": "\n\n".join(history.instruction),
        "response": {"role": "model", "parts": [{"text": response}]},
        "reference": truth if isinstance(truth, str) and truth else None,
        "intermediate_events": _intermediate(history.turns, mode, response),
        "agent_data": history.to_agent_data(),
        "metadata": _metadata(sample, turns, mode),
    }


def _response(last: Turn, mode: ResponseMode) -> str:
    if mode == "turn":
        return last.text
    said = last.after_tools or last.texts
    return said[-1] if said else ""


def _intermediate(
    turns: list[list[dict[str, Any]]], mode: ResponseMode, response: str
) -> list[dict[str, Any]]:
    """The last turn's events without what the row says elsewhere: prompt and response."""
    events = []
    place = len(turns) - 1
    last = turns[-1] if turns else []
    for number, event in enumerate(last):
        if event["author"] == "user":
            continue
        parts = event["content"]["parts"]
        final = number == len(last) - 1
        if mode == "turn" or final:
            parts = [part for part in parts if not _says(part, response, final=final)]
        if parts:
            written = {"event_id": f"{place}.{number}", "author": event["author"]}
            if "event_time" in event:
                written["creation_timestamp"] = event["event_time"]
            events.append({**written, "content": {**event["content"], "parts": parts}})
    return events


def _says(part: Mapping[str, Any], response: str, *, final: bool) -> bool:
    """Whether a part is words of the response."""
    if "text" not in part or part.get("thought"):
        return False
    text = part["text"].strip()
    return text in response if final else bool(text)


def _metadata(sample: Sample, turns: Turns, mode: ResponseMode) -> dict[str, Any]:
    roles = [turn.role for turn in turns.turns]
    return {
        "source": str(sample.metadata.get("source", "unknown")),
        "status": str(sample.status),
        "finish_reason": sample.trajectory.termination_reason if sample.trajectory else None,
        "response_mode": mode,
        "total_turns": len(roles),
        "user_turns": roles.count("user"),
        "model_turns": roles.count("model"),
        "total_tools": len(turns.events),
        "tool_errors": sum(event["is_error"] for event in turns.events),
    }


def from_vertex(row: Mapping[str, Any]) -> Sample:
    """The sample that a flat row holds: of its `agent_data`, else of prompt, events and response.

    Raises `WireError` for what is not such a row.
    """
    data = mapping_at(storable(dict(mapping_at(row, "row"))), "row")
    if "request" in data:
        raise WireError(
            "is a row of the Gemini layout, in which the SDK sees no tool calls",
            where="request",
            hint="read an evaluation record with `from_eval_record`",
        )
    subagents: list[Sample] = []
    if data.get("agent_data"):
        reader = TurnsReader(mapping_at(_parsed(data["agent_data"], "agent_data"), "agent_data"))
        messages, subagents = reader.messages, reader.subagents()
    else:
        messages = _read_columns(data)
    instruction = data.get("instruction")
    if instruction and (not messages or messages[0].role != "system"):
        text = text_at(instruction, "instruction")
        messages.insert(0, Message(role="system", content=text))
    return _sample(data, messages, subagents)


def _parsed(value: object, where: str) -> object:
    """`value`, or what it says as JSON: the SDK reads either."""
    if not isinstance(value, str):
        return value
    try:
        return storable(json.loads(value))
    except (ValueError, RecursionError) as error:
        raise WireError(f"is not JSON: {error}", where=where) from None


def _read_columns(data: Mapping[str, Any]) -> list[Message]:
    history = _parsed(data.get("conversation_history") or [], "conversation_history")
    contents = [
        _content(each, f"conversation_history[{n}]")
        for n, each in enumerate(sequence_at(history, "conversation_history"))
    ]
    contents.append(_content(data.get("prompt"), "prompt", role="user"))
    messages = [
        noted(message, "agent", None)
        for each in contents
        for message in from_gemini([{"role": "user", **each}])
    ]
    events = sequence_at(data.get("intermediate_events") or [], "intermediate_events")
    for n, event in enumerate(events):
        fields = mapping_at(event, f"intermediate_events[{n}]")
        author = str(fields.get("author") or "agent")
        messages += read_event(fields, author, f"intermediate_events[{n}]")
    answer = {"role": "model", **_content(data.get("response"), "response", role="model")}
    return messages + [noted(message, "agent", None) for message in from_gemini([answer])]


def _content(value: object, where: str, *, role: str = "user") -> dict[str, Any]:
    if isinstance(value, str):
        return {"role": role, "parts": [{"text": value}]}
    content = dict(mapping_at(value, where))
    if isinstance(content.get("content"), str):
        return {"role": content.get("role", role), "parts": [{"text": content["content"]}]}
    return content


def _sample(data: Mapping[str, Any], messages: list[Message], subagents: list[Sample]) -> Sample:
    said = mapping_at(data.get("metadata") or {}, "metadata")
    metadata: dict[str, Any] = {"source": said["source"]} if "source" in said else {}
    rest = {key: value for key, value in data.items() if key not in VERTEX_KEYS}
    if rest:
        metadata["vertex"] = rest
    if subagents:
        metadata["subagents"] = [sample.to_dict() for sample in subagents]
    reason = said.get("finish_reason")
    status = said.get("status")
    fields = {
        "id": optional_text_at(data.get("session_id"), "session_id") or "",
        "input": {key: data[key] for key in ("title", "created") if data.get(key)},
        "prompt": opening(messages),
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
    return validated(Sample, fields, "row")
