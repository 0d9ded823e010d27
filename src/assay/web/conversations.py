"""The conversations of a sample: the main one, its branches, and the sessions of its subagents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from assay.scorers import find_subagents, map_started_subagents
from assay.types import Message, ModelCall, Sample, build_label

from .page import PageModel
from .render import shorten_line

MAIN = "main"
SUBAGENT = "subagent"
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
    own = [call for call in calls if call.branch == 0]
    main = ConversationNode(
        name=MAIN,
        depth=0,
        title="main",
        reason="root",
        messages=len(sample.messages),
        calls=len(own),
    )
    found = [ShownConversation(main, sample.messages, own)]
    number = len(sample.messages) + 1
    for each in (*_iterate_branches(sample), *_iterate_nested(sample)):
        found.append(replace(each, first_number=number))
        # Judges read the main conversation and those of subagents.
        number += len(each.messages) if each.node.reason == SUBAGENT else 0
    return found[:_MAX_CONVERSATIONS], max(len(found) - _MAX_CONVERSATIONS, 0)


def _iterate_branches(sample: Sample) -> Iterator[ShownConversation]:
    """Yield the branches but the first, whose messages are those of the sample."""
    branches = [] if sample.trajectory is None else sample.trajectory.branches
    calls, depths = _list_model_calls(sample), {0: 0}
    for place, branch in enumerate(branches[:_MAX_CONVERSATIONS]):
        if place == 0:
            continue
        depths[place] = depths.get(branch.parent or 0, 0) + 1
        own = [call for call in calls if call.branch == place]
        last, origin = branch.parent_call, None
        if last is not None and 0 <= last < len(calls):
            origin = calls[last].message_index
        notes = [] if branch.decided_by is None else [_DECIDED_BY[branch.decided_by]]
        notes += ["other places are as likely"] if branch.ambiguous else []
        node = ConversationNode(
            name=f"branch-{place}",
            depth=min(depths[place], _MAX_DEPTH),
            title=f"branch {place}"
            if not branch.name
            else shorten_line(branch.name, _MAX_TITLE_CHARS),
            reason=branch.reason.replace("_", " "),
            # Checks name a subagent by its id.
            id=branch.name if branch.reason == SUBAGENT else None,
            messages=len(branch.messages),
            calls=len(own),
            origin=None if origin is None else origin + 1,
            parent=MAIN if not branch.parent else f"branch-{branch.parent}",
            note=", ".join(notes) or None,
        )
        yield ShownConversation(node, branch.messages, own)


def _iterate_nested(sample: Sample) -> Iterator[ShownConversation]:
    """Yield the recorded sessions of subagents as judges number their messages: parents first."""
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
        branches = 0 if above.trajectory is None else len(above.trajectory.list_subagents())
        # Those that are branches come first, and are listed as branches.
        sessions = islice(find_subagents(above), branches, None)
        for position, child in enumerate(sessions):
            if isinstance(child, Sample):
                place = places.get(started.get(child.id, ""))
                children.append((child, (*path, position), place))
            else:
                node = ConversationNode(
                    name=_name_subagent((*path, position)),
                    depth=len(path) + 1,
                    title="not recorded",
                    reason=SUBAGENT,
                    note=shorten_line(str(child)),
                )
                yield ShownConversation(node, (), ())
        # A stack: the first child is taken next.
        waiting += reversed(children)


def _describe_subagent(
    child: Sample, path: tuple[int, ...], origin: int | None
) -> ConversationNode:
    return ConversationNode(
        name=_name_subagent(path),
        depth=len(path),
        title=shorten_line(build_label(child) or child.id, _MAX_TITLE_CHARS),
        reason=SUBAGENT,
        id=child.id,
        messages=len(child.messages),
        calls=len(_list_model_calls(child)),
        origin=None if origin is None else origin + 1,
        parent=_name_subagent(path[:-1]) if path[1:] else MAIN,
    )


def _name_subagent(path: tuple[int, ...]) -> str:
    return f"agent-{'-'.join(map(str, path))}"


def _list_model_calls(sample: Sample) -> Sequence[ModelCall]:
    return () if sample.trajectory is None else sample.trajectory.calls
