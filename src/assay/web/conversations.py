"""The conversations of a sample: the main one, its branches, and the sessions of its subagents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from assay.scorers import UnreadableSubagent, find_subagents, map_started_subagents
from assay.types import Message, ModelCall, Sample, build_label

from .page import PageModel
from .render import shorten_line

MAIN = "main"
_MAX_CONVERSATIONS = 200
# Nesting of subagents, as in checks and judges.
_MAX_DEPTH = 8
_MAX_TITLE_CHARS = 90
_DECIDED_BY = {
    "declared": "declared by the agent",
    "tokens": "found by its tokens",
    "messages": "found by its messages",
}


class ConversationNode(PageModel):
    """One line of the tree of conversations."""

    name: str
    """`main`, `branch-2`, or the positions of a subagent: `agent-0-1`."""

    depth: int
    title: str
    reason: str
    """Why it is a conversation of its own: `root`, `subagent`, `compaction` …"""

    id: str | None = None
    """The id of a subagent."""

    messages: int = 0
    calls: int = 0
    origin: int | None = None
    """The message of the conversation above after which it begins, counted from 1."""

    parent: str | None = None
    note: str | None = None
    """Why it cannot be shown, or how its place was decided."""


@dataclass(frozen=True)
class ShownConversation:
    """A node with its messages and model calls."""

    node: ConversationNode
    messages: Sequence[Message]
    calls: Sequence[ModelCall]
    first_number: int = 1
    """The number that judges give to its first message."""


def list_conversations(sample: Sample) -> tuple[list[ShownConversation], int]:
    """Return the conversations, the main one first, and the number of those left out."""
    calls = _list_model_calls(sample)
    own = [call for call in calls if not _read_whole_number(getattr(call, "branch", 0))]
    main = ConversationNode(
        name=MAIN,
        depth=0,
        title="main",
        reason="root",
        messages=len(sample.messages),
        calls=len(own),
    )
    found = [ShownConversation(main, sample.messages, own)]
    found += _iterate_branches(_read_branches(sample), calls)
    number = len(sample.messages) + 1
    for each in _iterate_nested(sample):
        found.append(replace(each, first_number=number))
        number += len(each.messages)
    return found[:_MAX_CONVERSATIONS], max(len(found) - _MAX_CONVERSATIONS, 0)


def _read_branches(sample: Sample) -> list[dict[str, Any]]:
    recorded = getattr(sample.trajectory, "branches", None)
    if not isinstance(recorded, list):
        return []
    plain = (each.model_dump() if hasattr(each, "model_dump") else each for each in recorded)
    return [each if isinstance(each, dict) else {} for each in plain]


def _iterate_branches(
    branches: Sequence[Mapping[str, Any]], calls: Sequence[ModelCall]
) -> Iterator[ShownConversation]:
    depths = {0: 0}
    for place, branch in list(enumerate(branches))[1:_MAX_CONVERSATIONS]:
        parent = _read_whole_number(branch.get("parent"))
        depths[place] = depths.get(parent if parent is not None else 0, 0) + 1
        own = [call for call in calls if _read_whole_number(getattr(call, "branch", 0)) == place]
        messages, problem = _read_messages(branch.get("messages"))
        last = _read_whole_number(branch.get("parent_call"))
        origin = None
        if last is not None and 0 <= last < len(calls):
            origin = calls[last].message_index
        decided = str(branch.get("decided_by"))
        notes = [problem] if problem else []
        notes += [_DECIDED_BY[decided]] if decided in _DECIDED_BY else []
        notes += ["other places are as likely"] if branch.get("ambiguous") is True else []
        title = branch.get("name")
        node = ConversationNode(
            name=f"branch-{place}",
            depth=min(depths[place], _MAX_DEPTH),
            title=shorten_line(title, _MAX_TITLE_CHARS)
            if isinstance(title, str)
            else f"branch {place}",
            reason=str(branch.get("reason") or "unknown reason").replace("_", " ")[:60],
            messages=len(messages),
            calls=len(own),
            origin=None if origin is None else origin + 1,
            parent=MAIN if not parent else f"branch-{parent}",
            note=", ".join(notes) or None,
        )
        yield ShownConversation(node, messages, own)


def _read_messages(recorded: Any) -> tuple[list[Message], str | None]:
    if not isinstance(recorded, list):
        return [], None
    try:
        return [Message.model_validate(each) for each in recorded], None
    except ValidationError:
        return [], "its messages cannot be read"


def _iterate_nested(sample: Sample) -> Iterator[ShownConversation]:
    """Yield subagents in the order in which judges number their messages: parents first."""
    waiting: list[tuple[Sample, tuple[int, ...], int | None]] = [(sample, (), None)]
    while waiting:
        above, path, origin = waiting.pop()
        if path:
            node = _describe_subagent(above, path, origin)
            yield ShownConversation(node, above.messages, _list_model_calls(above))
        if len(path) >= _MAX_DEPTH:
            continue
        started = {child: call for call, child in map_started_subagents(above).items()}
        places = {
            call.id: place for place, each in enumerate(above.messages) for call in each.tool_calls
        }
        children: list[tuple[Sample, tuple[int, ...], int | None]] = []
        for position, child in enumerate(find_subagents(above)):
            if isinstance(child, Sample):
                place = places.get(started.get(child.id, ""))
                children.append((child, (*path, position), place))
            else:
                yield ShownConversation(_describe_unreadable(child, (*path, position)), (), ())
        waiting += reversed(children)


def _describe_subagent(
    child: Sample, path: tuple[int, ...], origin: int | None
) -> ConversationNode:
    return ConversationNode(
        name=_name_subagent(path),
        depth=len(path),
        title=shorten_line(build_label(child) or child.id, _MAX_TITLE_CHARS),
        reason="subagent",
        id=child.id,
        messages=len(child.messages),
        calls=len(_list_model_calls(child)),
        origin=None if origin is None else origin + 1,
        parent=_name_subagent(path[:-1]) if path[1:] else MAIN,
    )


def _describe_unreadable(problem: UnreadableSubagent, path: tuple[int, ...]) -> ConversationNode:
    return ConversationNode(
        name=_name_subagent(path),
        depth=len(path),
        title="not recorded",
        reason="subagent",
        note=shorten_line(str(problem)),
    )


def _name_subagent(path: tuple[int, ...]) -> str:
    return f"agent-{'-'.join(map(str, path))}"


def _list_model_calls(sample: Sample) -> Sequence[ModelCall]:
    return () if sample.trajectory is None else sample.trajectory.calls


def _read_whole_number(value: Any) -> int | None:
    return value if type(value) is int else None
