"""A conversation as checks read it: turns numbered as in an evaluation record, and tool calls.

A turn is all consecutive messages of one side. Turns count from 1, the user's and the model's
alike; system messages are not counted. A subagent's session is a conversation of its own, inside
the turn whose call started it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic_core import to_json

from assay.formats import SEPARATOR, Turn, Turns
from assay.types import Boundary, Message, Sample, ToolCall

from ..subagents import UnreadableSubagent, list_started, read_subagents

_MARKS = frozenset({"failed", "is_error", "status"})
"""Details of a tool's message that say whether the tool failed."""

_UNMARKED = "unmarked"
_DEEPEST = 8
"""Subagents of subagents; deeper ones are not read, and checks that would need them not judged."""

Agents = Literal["all", "main", "subagents"]
"""Whose conversations a check reads: everybody's, the main agent's, or its subagents'."""


@dataclass(frozen=True)
class Passage:
    """A text, and where in the conversation it stands."""

    text: str
    turns: tuple[tuple[int, int], ...]
    """From which character on it is of which turn."""

    what: str
    """Names it in a reason: `response`, `output of 'bash'`."""

    value: Any = None
    """The text as a JSON value, where it came as one."""

    agent: str = ""
    """Names the subagent in a reason; empty for the main agent."""

    def turn_at(self, position: int) -> int:
        """The turn that a character belongs to."""
        return next(turn for start, turn in reversed(self.turns) if start <= position)

    def place_at(self, position: int) -> str:
        """Where a character is, in the words of a reason."""
        return f"turn {self.turn_at(position)}{self.agent}"

    @property
    def place(self) -> str:
        """Where it is, in the words of a reason."""
        first, last = self.turns[0][1], self.turns[-1][1]
        turns = f"turn {first}" if first == last else f"turns {first} to {last}"
        return turns + self.agent


@dataclass(frozen=True)
class Call:
    """A tool call and its answer."""

    name: str
    asked: ToolCall
    turn: int
    output: str | None
    error: str | None
    """What the tool said of its failure, or that it never answered."""

    marked: bool
    """Whether the answer says if the tool failed."""

    failed: bool
    agent: str = ""
    """Names the subagent in a reason; empty for the main agent."""

    main_turn: int | None = None
    """The turn of the main conversation that it belongs to; None where that is not recorded."""

    @property
    def place(self) -> str:
        """Where it was made, in the words of a reason."""
        return f"turn {self.turn}{self.agent}"


class Reading:
    """One sample's conversation, read once for all checks, with those of its subagents."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.agent = ""
        """Names the subagent in a reason; empty for the main agent."""

        self.main_turn: int | None = None
        """The turn of the main conversation in which this one was started, where it is known."""
        self.thoughts: list[Passage] = []
        self._merged = Turns({})
        self._asked: list[ToolCall] = []
        for index, message in enumerate(sample.messages):
            self._merged.take(_marked(message), f"messages[{index}]")
            if message.role != "assistant":
                continue
            self._asked += message.tool_calls
            if message.reasoning:
                turn = len(self.turns)
                self.thoughts.append(Passage(message.reasoning, ((0, turn),), "reasoning"))

    @property
    def turns(self) -> list[Turn]:
        return self._merged.turns

    @cached_property
    def calls(self) -> list[Call]:
        """Every tool call, in the order in which they were asked for."""
        events = zip(self._merged.events, self._asked, strict=True)
        calls = (_call(event, asked) for event, asked in events)
        if not self.agent:
            return [replace(call, main_turn=call.turn) for call in calls]
        return [replace(call, agent=self.agent, main_turn=self.main_turn) for call in calls]

    def conversations(self, agents: Agents) -> list["Reading"]:
        """The conversations of these agents, the main one first."""
        inner = [] if agents == "main" else [each for each, _ in self._inner[0]]
        return inner if agents == "subagents" else [self, *inner]

    def calls_by(self, agents: Agents) -> list[Call]:
        """The calls of these agents; those of a subagent follow the call that started it."""
        if agents == "main" or not self._inner[0]:
            return [] if agents == "subagents" else self.calls
        calls = list(self._all_calls())
        return [call for call in calls if call.agent] if agents == "subagents" else calls

    def _all_calls(self) -> Iterator[Call]:
        by_call: dict[int | None, list[Reading]] = {}
        for inner, place in self._inner[0]:
            by_call.setdefault(place, []).append(inner)
        for place, call in enumerate(self.calls):
            yield call
            for inner in by_call.get(place, ()):
                yield from inner.calls
        for inner in by_call.get(None, ()):
            yield from inner.calls

    @cached_property
    def _inner(self) -> tuple[list[tuple["Reading", int | None]], str | None]:
        """Every subagent's conversation with the place of the call of `calls` that led to it.

        Beside them, why one could not be read, or None.
        """
        found: list[tuple[Reading, int | None]] = []
        try:
            self._gather(found)
        except UnreadableSubagent as error:
            return found, str(error)
        return found, None

    def _gather(self, found: list[tuple["Reading", int | None]]) -> None:
        """Walk through subagents of subagents, each after the one that started it."""
        waiting: list[tuple[Reading, int | None, int]] = [(self, None, 0)]
        while waiting:
            above, place, depth = waiting.pop()
            if depth:
                found.append((above, place))
            children = []
            for inner, own_place in above._started():
                if depth >= _DEEPEST:
                    raise UnreadableSubagent(f"subagents are nested more than {_DEEPEST} deep")
                if depth == 0 and own_place is not None:
                    inner.main_turn = self.calls[own_place].turn
                elif depth:
                    inner.main_turn = above.main_turn
                children.append((inner, own_place if depth == 0 else place, depth + 1))
            waiting.extend(reversed(children))

    def _started(self) -> Iterator[tuple["Reading", int | None]]:
        """The subagents that this agent started itself, each with the place of the call."""
        children = list(read_subagents(self.sample))
        if not children:
            return
        started = list_started(self.sample)
        places = {started.get(asked.id or ""): n for n, asked in enumerate(self._asked)}
        for child in children:
            inner = Reading(child)
            inner.agent = f" of subagent {child.id!r:.80}"
            yield inner, places.get(child.id)

    def why_unjudgeable(self, agents: Agents) -> str | None:
        """Why nothing can be said of what these agents did, or None."""
        return self.unjudgeable or (None if agents == "main" else self._inner[1])

    @property
    def unjudgeable(self) -> str | None:
        """Why nothing can be said of what the agent did, or None."""
        failure = self.sample.failure
        if failure is not None and failure.boundary is not Boundary.SCORER:
            return f"the rollout failed: {failure.kind}: {failure.message[:200]}"
        if not any(turn.role == "model" for turn in self.turns):
            return "no turn by the assistant"
        return None

    @property
    def response(self) -> Passage | None:
        """What was said last; None when the user spoke last."""
        if not self.turns or self.turns[-1].role != "model":
            return None
        last = self.turns[-1]
        said = last.after_tools or last.texts or [""]
        return Passage(said[-1], ((0, len(self.turns)),), "response", agent=self.agent)

    def said_in(self, number: int, what: str) -> Passage:
        """The whole text of a turn."""
        return Passage(self.turns[number - 1].text, ((0, number),), what, agent=self.agent)

    def joined(self, role: str, what: str) -> Passage | None:
        """All turns of one side as one text."""
        starts: list[tuple[int, int]] = []
        texts: list[str] = []
        position = 0
        for number, turn in enumerate(self.turns, start=1):
            if turn.role == role and turn.text:
                starts.append((position, number))
                texts.append(turn.text)
                position += len(turn.text) + len(SEPARATOR)
        if not starts:
            return None
        return Passage(SEPARATOR.join(texts), tuple(starts), what, agent=self.agent)


def _marked(message: Message) -> Message:
    """A tool's message with a status, also where it does not say whether the tool failed."""
    details = message.details or {}
    if message.role not in ("tool", "function") or not _MARKS.isdisjoint(details):
        return message
    return message.model_copy(update={"details": {**details, "status": _UNMARKED}})


def _call(event: dict[str, Any], asked: ToolCall) -> Call:
    answer = event["function_response"]["response"]
    failed = bool(event["is_error"]) or event["status"] == "error"
    text = _text(answer)
    told = "error" in answer and "output" not in answer
    return Call(
        name=event["function_call"]["name"],
        asked=asked,
        turn=event["turn"],
        output=None if told else text,
        error=text if told or failed else None,
        marked=event["status"] != _UNMARKED,
        failed=failed,
    )


def _text(answer: dict[str, Any]) -> str:
    if len(answer) == 1:
        (only,) = answer.values()
        if isinstance(only, str):
            return only
    return to_json(answer, fallback=str).decode()
