"""The trajectory of a session, built from its recorded calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import from_json, to_json

from assay.errors import AssayError
from assay.types import Branch, Message, ModelCall, Trajectory, Usage

from .lineage import CallBranch, CallPlace, Lineage
from .recorded_call import RecordedCall
from .replay import mark_call
from .request_parts import write_difference, write_finite_json

# Of calls that no tokens are paid for: repeated answers, counts and refused requests.
_FREE = Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)


def build_recorded_trajectory(
    calls: Sequence[RecordedCall], *, reason: str | None = None
) -> Trajectory:
    """Build the trajectory of all calls; its messages are the main conversation."""
    lineage = Lineage()
    for call in calls:
        lineage.add(call)
    line = _choose_main_line(lineage.branches)
    # The main conversation starts with the first branch of its line.
    ordered = [*line[:1], *(branch for branch in lineage.branches if branch not in line[:1])]
    places = {branch: place for place, branch in enumerate(ordered)}
    numbers = {call: number for number, call in enumerate(calls)}
    messages = _join_line(line)
    positions = _match_answers(messages, [call for branch in line for call in branch.calls])
    written = [
        _build_model_call(
            call,
            calls,
            numbers,
            branch=0 if place is None else places[place.branch],
            place=place,
            message_index=positions.get(call),
        )
        for call in calls
        for place in (lineage.places.get(call),)
    ]
    return Trajectory(
        messages=messages,
        calls=written,
        branches=_write_branches(ordered, numbers, messages) if len(ordered) > 1 else [],
        termination_reason=reason or "agent",
        truncated=reason is not None,
    )


def split_conversations(calls: Sequence[RecordedCall]) -> list[list[RecordedCall]]:
    """Group the calls of a session by conversation, each with its subagents and other branches."""
    lineage = Lineage()
    for call in calls:
        lineage.add(call)
    groups: dict[CallBranch, list[RecordedCall]] = {}
    waiting: list[RecordedCall] = []
    for call in calls:
        if (place := lineage.places.get(call)) is None:
            waiting.append(call)  # such as a title before the first turn
            continue
        root = place.branch
        while root.parent is not None:
            root = root.parent
        groups.setdefault(root, []).extend([*waiting, call])
        waiting.clear()
    return [*groups.values(), *([waiting] if waiting else [])]


def read_conversation(call: RecordedCall) -> list[Message]:
    """Return the conversation that a call sent, and its answer."""
    try:
        messages = call.dialect.read_conversation(call.request.to_body())
    except AssayError:
        messages = []  # the model understood it, so only its display is lost
    return messages if call.reply is None else [*messages, call.reply.message]


def _choose_main_line(branches: Sequence[CallBranch]) -> list[CallBranch]:
    """Return the branches of the main conversation, from its start to its last turn.

    It is the one with most turns; of several, the last one.
    """
    lines: dict[CallBranch, list[CallBranch]] = {}
    for branch in branches:
        own = branch.reason in ("root", "subagent") or branch.parent is None
        lines[branch] = [branch] if own else [*lines[branch.parent], branch]  # type: ignore[index]  # not None
    found = [
        line
        for branch, line in lines.items()
        if branch.last is not None and line[0].reason != "subagent"
    ]
    if not found:
        return list(branches[:1])
    turns: dict[CallBranch, int] = {}
    for branch, line in lines.items():
        turns[line[0]] = turns.get(line[0], 0) + len(branch.calls)
    answered = [(line, line[-1].last) for line in found]
    return max(
        answered, key=lambda pair: (turns[pair[0][0]], -1 if pair[1] is None else pair[1].number)
    )[0]


def _join_line(line: Sequence[CallBranch]) -> list[Message]:
    """Return the conversation along a line of branches.

    After a compaction, the messages before it are kept. Other forks replace them: the agent
    itself sent another history.
    """
    messages: list[Message] = []
    for branch in line:
        if branch.last is None:
            continue
        own = read_conversation(branch.last)
        if branch.reason == "compaction":
            messages = _add_summed_up(messages, branch.summary)
            known = {_identify_message(message) for message in messages}
            own = [*messages, *(each for each in own if _identify_message(each) not in known)]
        messages = own
    return messages


def _add_summed_up(messages: list[Message], summary: RecordedCall | None) -> list[Message]:
    """Add what followed the last turn before it was summed up, such as the result of a tool."""
    if summary is None:
        return messages
    # Without the request for a summary and its answer.
    sent = read_conversation(summary)[:-2]
    pairs = zip(sent, messages, strict=False)
    continues = len(sent) > len(messages) and all(
        _identify_message(left) == _identify_message(right) for left, right in pairs
    )
    return [*messages, *sent[len(messages) :]] if continues else messages


def _identify_message(message: Message) -> object:
    calls = tuple((call.id, call.name) for call in message.tool_calls)
    return message.role, message.text.strip(), calls, message.tool_call_id


def _match_answers(
    messages: Sequence[Message], calls: Sequence[RecordedCall]
) -> dict[RecordedCall, int]:
    """Return the positions of answers in the conversation."""
    found: dict[RecordedCall, int] = {}
    known = list(map(_identify_message, messages))
    start = 0
    for call in sorted(calls, key=lambda each: each.number):
        if call.reply is None or not call.succeeded:
            continue
        with suppress(ValueError):  # the conversation does not contain the answer
            found[call] = known.index(_identify_message(call.reply.message), start)
            start = found[call] + 1
    return found


def _write_branches(
    ordered: Sequence[CallBranch], numbers: Mapping[RecordedCall, int], messages: list[Message]
) -> list[Branch]:
    places = {branch: place for place, branch in enumerate(ordered)}
    written = []
    for branch in ordered:
        own = [] if branch.last is None else read_conversation(branch.last)
        written.append(
            Branch(
                reason=branch.reason,
                parent=None if branch.parent is None else places[branch.parent],
                parent_call=None if branch.parent_call is None else numbers[branch.parent_call],
                name=branch.name,
                decided_by=branch.decided_by,
                ambiguous=branch.ambiguous,
                messages=[] if own == messages else own,
            )
        )
    return written


def _build_model_call(
    call: RecordedCall,
    calls: Sequence[RecordedCall],
    numbers: Mapping[RecordedCall, int],
    *,
    branch: int,
    place: CallPlace | None,
    message_index: int | None,
) -> ModelCall:
    parent = None if place is None else place.parent
    # Most of a request is in the one that it continues, else often in the one before.
    like = numbers[parent] if parent is not None else numbers[call] - 1
    earlier = calls[like].request if like >= 0 else None
    if earlier is not None and earlier.list_field != call.request.list_field:
        earlier = None
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
    if place is not None and place.decided_by is not None:
        wire["lineage_by"] = place.decided_by
    fields: dict[str, Any] = {
        "latency_s": call.latency_s,
        "error": call.error,
        "purpose": call.purpose,
        "branch": branch,
        "parent": None if parent is None else numbers[parent],
        "message_index": message_index,
        "wire": wire,
    }
    base = ModelCall() if call.reply is None else call.reply.call
    if call.purpose == "retry":
        # Tokens and usage are those of the first call, and count once.
        base = ModelCall(model=base.model, finish_reason=base.finish_reason, usage=_FREE)
    elif call.purpose == "count_tokens" or call.is_free:
        fields["usage"] = _FREE
    if call.dropped:
        # By the reader of the request, and by the writer of the one to the model.
        also = (base.__pydantic_extra__ or {}).get("lost")
        fields["lost"] = dict(Counter(call.dropped) | Counter(also))
    if call.sampling:
        sampling = to_json({**base.sampling, **call.sampling})
        fields["sampling"] = from_json(write_finite_json(sampling))
    return mark_call(base.model_copy(update=fields))
