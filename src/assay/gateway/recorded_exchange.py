"""Recorded calls of a rollout in the form that replay reads: request, answer and record.

Calls at the wire have their requests recorded. Those of the turn loop are the beginning of its
conversation, and those of an agent in this process have a request of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.formats import UNSUPPORTED_FIELDS
from assay.types import CallPurpose, Message, ModelCall, ToolSpec, Trajectory

from .request_parts import PartPool, RequestParts, expand_difference, write_difference

OWN_DIALECT = "assay"
"""Calls that assay itself makes, in its own messages."""

# Fields of a call that belong to the trajectory which it was recorded in.
_PLACE_FIELDS = frozenset(
    {"wire", "exchange", "branch", "parent", "message_index", "purpose", "error", "replayed"}
)
_SETTINGS = ("temperature", "top_p", "max_tokens", "stop", "thinking", "reasoning_effort")

DialectName = Literal["assay", "openai_chat", "openai_responses", "anthropic"]


class RecordedExchange(BaseModel):
    """One call. Its request is written as the difference to an earlier one of the same rollout."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    sample: str
    repeat: Annotated[int, Field(ge=0)]
    call: Annotated[int, Field(ge=0)]
    """The position among the calls of the rollout."""

    purpose: CallPurpose = "turn"
    dialect: DialectName
    list_field: Literal["messages", "input"] = "messages"
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    error: str | None = None
    """Why the call had no answer."""

    request: dict[str, Any]
    answer: dict[str, Any] | None = None
    first_byte_s: float | None = None
    duration_s: float | None = None
    """Of the whole rollout; on its first call only."""

    record: dict[str, Any] = Field(default_factory=dict)
    """The fields of the `ModelCall`: tokens, logprobs, usage, latency and others."""

    def build_call(self) -> ModelCall:
        """Return the record of the call, marked as replayed. Raises pydantic's error."""
        return ModelCall.model_validate({**self.record, "replayed": True})


def build_own_request(
    endpoint: Mapping[str, Any], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> dict[str, Any]:
    """Return the request of a call that assay itself makes.

    `endpoint` is the description of the model. Seeds are not compared: each repeat has a recording
    of its own.
    """
    written = [write_tool(tool) for tool in tools]
    return _build_own_body(endpoint, [write_message(message) for message in messages], written)


def _build_own_body(
    endpoint: Mapping[str, Any], messages: list[dict[str, Any]], tools: Sequence[Any]
) -> dict[str, Any]:
    settings = {name: endpoint[name] for name in _SETTINGS if endpoint.get(name) is not None}
    return {
        "model": f"{endpoint.get('provider')}:{endpoint.get('model')}",
        **settings,
        **({"tools": list(tools)} if tools else {}),
        "messages": messages,
    }


def write_message(message: Message) -> dict[str, Any]:
    """Return the part of a message that is sent."""
    return _omit_unsent(message.to_dict())


def _omit_unsent(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in UNSUPPORTED_FIELDS}


def write_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as the turn loop records it."""
    return tool.model_dump(mode="json", exclude_defaults=True)


def list_exchanges(
    trajectory: Trajectory, *, sample: str, repeat: int, endpoint: Mapping[str, Any]
) -> Iterator[RecordedExchange]:
    """Yield the calls of a rollout that can be replayed, in their order.

    `endpoint` is the description of the model, for the calls of assay itself. Calls whose request
    was not recorded are left out, and so are retries, which have the answer of another call.
    """
    pool = PartPool(lambda data: data)
    written: list[RequestParts] = []
    positions: dict[int, int] = {}
    for number, call, asked in _list_requests(trajectory, endpoint):
        parts = pool.split(asked.body, asked.list_field)
        # Most of a request is in the one that it continues.
        like = positions.get(-1 if call.parent is None else call.parent, len(written) - 1)
        earlier = written[like] if like >= 0 else None
        if earlier is not None and earlier.list_field != parts.list_field:
            earlier = None
        yield RecordedExchange.model_construct(
            sample=sample,
            repeat=repeat,
            call=len(written),
            purpose=call.purpose,
            dialect=asked.dialect,
            list_field=asked.list_field,
            status=None if call.wire is None else call.wire.get("status"),
            error=call.error,
            request=write_difference(parts, like, earlier),
            answer=asked.answer,
            first_byte_s=None if call.wire is None else call.wire.get("first_byte_s"),
            duration_s=None if written else trajectory.duration,
            record=_write_call_record(call),
        )
        positions[number] = len(written)
        written.append(parts)


def _write_call_record(call: ModelCall) -> dict[str, Any]:
    plain = call.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    record = {name: value for name, value in plain.items() if name not in _PLACE_FIELDS}
    if plain.get("replayed") and isinstance(usage := record.get("usage"), dict):
        # A replayed call cost nothing; its recording again has the cost of the first one.
        usage.pop("cost_usd", None)
        if (cost := usage.pop("recorded_cost_usd", None)) is not None:
            usage["cost_usd"] = cost
    return record


@dataclass(frozen=True)
class _Asked:
    """A request and its answer."""

    dialect: Any
    list_field: Any
    body: dict[str, Any]
    answer: dict[str, Any] | None


def _list_requests(
    trajectory: Trajectory, endpoint: Mapping[str, Any]
) -> Iterator[tuple[int, ModelCall, _Asked]]:
    bodies: dict[int, dict[str, Any]] = {}
    own_messages: list[Any] = []
    extra = trajectory.__pydantic_extra__ or {}
    for number, call in enumerate(trajectory.calls):
        wire, exchange = call.wire, (call.__pydantic_extra__ or {}).get("exchange")
        if wire is not None:
            list_field = wire.get("list_field")
            body = bodies[number] = expand_difference(wire.get("request"), bodies, list_field)
            # A call without a status was aborted by the agent.
            if call.purpose != "retry" and wire.get("status") is not None:
                yield number, call, _Asked(wire["dialect"], list_field, body, wire.get("answer"))
        elif isinstance(exchange, dict):
            kept = own_messages[: exchange["kept"]]
            own_messages = [*kept, *map(_omit_unsent, exchange["added"])]
            body = _build_own_body(endpoint, own_messages, exchange.get("tools") or ())
            yield number, call, _Asked(OWN_DIALECT, "messages", body, exchange["answer"])
            own_messages = [*own_messages, _omit_unsent(exchange["answer"])]
        elif (reply := _find_reply(trajectory, call)) is not None:
            before = [write_message(each) for each in trajectory.messages[: call.message_index]]
            answer = reply.to_dict()
            body = _build_own_body(endpoint, before, extra.get("tools") or ())
            yield number, call, _Asked(OWN_DIALECT, "messages", body, answer)


def _find_reply(trajectory: Trajectory, call: ModelCall) -> Message | None:
    index, messages = call.message_index, trajectory.messages
    if index is None or not 0 <= index < len(messages) or messages[index].role != "assistant":
        return None
    return messages[index]
