"""State that the Responses API keeps on the model's server, resolved from the recorded calls.

A request then contains its whole conversation: it can be recorded, continued, translated and
replayed like one of any other agent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .dialects import OPENAI_RESPONSES
from .http_answers import CallRefused
from .recorded_call import RecordedCall

_PREVIOUS = "previous_response_id"
# The conversation, or the answer, would be on the server only.
_UNRECORDED = ("conversation", "background")


def resolve_response_state(body: dict[str, Any], calls: Sequence[RecordedCall]) -> dict[str, Any]:
    """Return a request with the items that it refers to. Raises `CallRefused` for unknown ones."""
    for name in _UNRECORDED:
        if body.get(name):
            raise _build_state_refusal(
                name, "keeps state on the model's server, which is not recorded"
            )
    given = body.get("input")
    items = _list_input(given)
    references = [
        place
        for place, item in enumerate(items)
        if isinstance(item, Mapping) and item.get("type") == "item_reference"
    ]
    previous = body.get(_PREVIOUS)
    if previous is None and not references:
        return body
    answered = [
        call for call in calls if call.dialect is OPENAI_RESPONSES and call.answer is not None
    ]
    recorded = (item for call in answered for item in _list_output(call) if references)
    known = {item["id"]: item for item in recorded if isinstance(item.get("id"), str)}
    items = list(items)
    for place in references:
        # As text: an id of another type is unknown, not a failure of the gateway.
        if (found := known.get(str(items[place].get("id")))) is None:
            raise _build_state_refusal(f"input[{place}]", "refers to an item that is not recorded")
        items[place] = found
    resolved = {key: value for key, value in body.items() if key != _PREVIOUS}
    if previous is None:
        return {**resolved, "input": items}
    for call in reversed(answered):
        if call.answer is not None and call.answer.get("id") == previous:
            before = _list_input(call.request.to_body().get("input"))
            return {**resolved, "input": [*before, *_list_output(call), *items]}
    raise _build_state_refusal(_PREVIOUS, "names a response that this session has not recorded")


def _list_output(call: RecordedCall) -> list[dict[str, Any]]:
    items = (call.answer or {}).get("output")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _list_input(given: object) -> list[Any]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _build_state_refusal(field: str, problem: str) -> CallRefused:
    return CallRefused(
        400, f"`{field}` {problem}; send the whole conversation as `input`", code="unrecorded_state"
    )
