"""The trajectory of a session, built from its recorded calls."""

from collections.abc import Sequence
from typing import Any

from assay.errors import AssayError
from assay.types import Message, ModelCall, Trajectory, Usage

from .recorded_call import RecordedCall
from .request_parts import write_difference

# A repeated answer was not requested from the model.
_FREE = Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)


def build_recorded_trajectory(
    calls: Sequence[RecordedCall], *, reason: str | None = None
) -> Trajectory:
    """Build the trajectory of all calls; its messages are the main conversation."""
    turns = [call for call in calls if call.purpose == "turn" and call.succeeded]
    messages = read_messages(turns[-1]) if turns else []
    written = [
        build_model_call(call, like=call.number - 1 if call.number else None, calls=calls)
        for call in calls
    ]
    return Trajectory(
        messages=messages,
        calls=written,
        termination_reason=reason or "agent",
        truncated=reason is not None,
    )


def read_messages(call: RecordedCall) -> list[Message]:
    """Return the conversation that a call sent, and its answer."""
    try:
        messages = call.dialect.read_conversation(call.request.to_body())
    except AssayError:
        messages = []  # the model understood it, so only its display is lost
    return messages if call.reply is None else [*messages, call.reply.message]


def build_model_call(
    call: RecordedCall, *, like: int | None, calls: Sequence[RecordedCall], **fields: Any
) -> ModelCall:
    """Write the record of one call."""
    earlier = None if like is None else calls[like].request
    wire: dict[str, Any] = {
        "dialect": call.dialect.name,
        "list_field": call.dialect.list_field,
        "started_at": call.started_at,
        "streamed": call.streamed,
        "status": call.status,
        "request": write_difference(call.request, like, earlier),
    }
    if call.answer is not None and call.repeats is None:
        wire["answer"] = call.answer
    if call.headers:
        wire["headers"] = call.headers
    if call.first_byte_s is not None:
        wire["first_byte_s"] = round(call.first_byte_s, 6)
    base = ModelCall() if call.reply is None else call.reply.call
    more: dict[str, Any] = {
        "latency_s": call.latency_s,
        "error": call.error,
        "purpose": call.purpose,
        "wire": wire,
        **fields,
    }
    if call.sampling:
        more["sampling"] = {**base.sampling, **call.sampling}
    if call.dropped:
        more["lost"] = call.dropped
    if call.purpose == "retry":
        # Tokens and usage are those of the first call, and count once.
        kept = ModelCall(model=base.model, finish_reason=base.finish_reason, usage=_FREE)
        return kept.model_copy(update=more)
    return base.model_copy(update=more)
