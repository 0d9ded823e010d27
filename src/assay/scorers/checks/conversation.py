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

from assay.formats import TEXT_SEPARATOR, EvalTurn, EvalTurns
from assay.types import Boundary, Message, Sample, ToolCall

from ..subagents import UnreadableSubagent, map_started_subagents, read_subagents

_STATUS_KEYS = frozenset({"failed", "is_error", "status"})
"""Details of a tool's message that say whether the tool failed."""

_UNMARKED = "unmarked"
_MAX_CHECKED_DEPTH = 8
"""Subagents of subagents; deeper ones are not read, and checks that would need them not judged."""

AgentScope = Literal["all", "main", "subagents"]
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

    def find_turn(self, position: int) -> int:
        """The turn that a character belongs to."""
        return next(turn for start, turn in reversed(self.turns) if start <= position)

    def describe_place(self, position: int) -> str:
        """Where a character is, in the words of a reason."""
        return f"turn {self.find_turn(position)}{self.agent}"

    @property
    def place(self) -> str:
        """Where it is, in the words of a reason."""
        first, last = self.turns[0][1], self.turns[-1][1]
        turns = f"turn {first}" if first == last else f"turns {first} to {last}"
        return turns + self.agent


@dataclass(frozen=True)
class RecordedCall:
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


class ConversationView:
    """One sample's conversation, read once for all checks, with those of its subagents."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.agent = ""
        """Names the subagent in a reason; empty for the main agent."""

        self.main_turn: int | None = None
        """The turn of the main conversation in which this one was started, where it is known."""
        self.thoughts: list[Passage] = []
        self._merged = EvalTurns({})
        self._asked: list[ToolCall] = []
        for index, message in enumerate(sample.messages):
            self._merged.take(_add_status(message), f"messages[{index}]")
            if message.role != "assistant":
                continue
            self._asked += message.tool_calls
            if message.reasoning:
                turn = len(self.turns)
                self.thoughts.append(Passage(message.reasoning, ((0, turn),), "reasoning"))

    @property
    def turns(self) -> list[EvalTurn]:
        return self._merged.turns

    @cached_property
    def calls(self) -> list[RecordedCall]:
        """Every tool call, in the order in which they were asked for."""
        events = zip(self._merged.events, self._asked, strict=True)
        calls = (_build_recorded_call(event, asked) for event, asked in events)
        if not self.agent:
            return [replace(call, main_turn=call.turn) for call in calls]
        return [replace(call, agent=self.agent, main_turn=self.main_turn) for call in calls]

    def list_conversations(self, agents: AgentScope) -> list["ConversationView"]:
        """The conversations of these agents, the main one first."""
        inner = [] if agents == "main" else [each for each, _ in self._subagents[0]]
        return inner if agents == "subagents" else [self, *inner]

    def list_calls(self, agents: AgentScope) -> list[RecordedCall]:
        """The calls of these agents; those of a subagent follow the call that started it."""
        if agents == "main" or not self._subagents[0]:
            return [] if agents == "subagents" else self.calls
        calls = list(self._iterate_calls())
        return [call for call in calls if call.agent] if agents == "subagents" else calls

    def _iterate_calls(self) -> Iterator[RecordedCall]:
        by_call: dict[int | None, list[ConversationView]] = {}
        for inner, place in self._subagents[0]:
            by_call.setdefault(place, []).append(inner)
        for place, call in enumerate(self.calls):
            yield call
            for inner in by_call.get(place, ()):
                yield from inner.calls
        for inner in by_call.get(None, ()):
            yield from inner.calls

    @cached_property
    def _subagents(self) -> tuple[list[tuple["ConversationView", int | None]], str | None]:
        """Every subagent's conversation with the place of the call of `calls` that led to it.

        Beside them, why one could not be read, or None.
        """
        found: list[tuple[ConversationView, int | None]] = []
        try:
            self._gather_subagents(found)
        except UnreadableSubagent as error:
            return found, str(error)
        return found, None

    def _gather_subagents(self, found: list[tuple["ConversationView", int | None]]) -> None:
        """Walk through subagents of subagents, each after the one that started it."""
        waiting: list[tuple[ConversationView, int | None, int]] = [(self, None, 0)]
        while waiting:
            above, place, depth = waiting.pop()
            if depth:
                found.append((above, place))
            children = []
            for inner, own_place in above._read_started():
                if depth >= _MAX_CHECKED_DEPTH:
                    raise UnreadableSubagent(
                        f"subagents are nested more than {_MAX_CHECKED_DEPTH} deep"
                    )
                if depth == 0 and own_place is not None:
                    inner.main_turn = self.calls[own_place].turn
                elif depth:
                    inner.main_turn = above.main_turn
                children.append((inner, own_place if depth == 0 else place, depth + 1))
            waiting.extend(reversed(children))

    def _read_started(self) -> Iterator[tuple["ConversationView", int | None]]:
        """The subagents that this agent started itself, each with the place of the call."""
        children = list(read_subagents(self.sample))
        if not children:
            return
        started = map_started_subagents(self.sample)
        places = {started.get(asked.id or ""): n for n, asked in enumerate(self._asked)}
        for child in children:
            inner = ConversationView(child)
            inner.agent = f" of subagent {child.id!r:.80}"
            yield inner, places.get(child.id)

    def explain_unscored(self, agents: AgentScope) -> str | None:
        """Why nothing can be said of what these agents did, or None."""
        return self.unscored_reason or (None if agents == "main" else self._subagents[1])

    @property
    def unscored_reason(self) -> str | None:
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

    def read_turn(self, number: int, what: str) -> Passage:
        """The whole text of a turn."""
        return Passage(self.turns[number - 1].text, ((0, number),), what, agent=self.agent)

    def join_turns(self, role: str, what: str) -> Passage | None:
        """All turns of one side as one text."""
        starts: list[tuple[int, int]] = []
        texts: list[str] = []
        position = 0
        for number, turn in enumerate(self.turns, start=1):
            if turn.role == role and turn.text:
                starts.append((position, number))
                texts.append(turn.text)
                position += len(turn.text) + len(TEXT_SEPARATOR)
        if not starts:
            return None
        return Passage(TEXT_SEPARATOR.join(texts), tuple(starts), what, agent=self.agent)


def _add_status(message: Message) -> Message:
    """A tool's message with a status, also where it does not say whether the tool failed."""
    details = message.details or {}
    if message.role not in ("tool", "function") or not _STATUS_KEYS.isdisjoint(details):
        return message
    return message.model_copy(update={"details": {**details, "status": _UNMARKED}})


def _build_recorded_call(event: dict[str, Any], asked: ToolCall) -> RecordedCall:
    answer = event["function_response"]["response"]
    failed = bool(event["is_error"]) or event["status"] == "error"
    text = _format_answer(answer)
    told = "error" in answer and "output" not in answer
    return RecordedCall(
        name=event["function_call"]["name"],
        asked=asked,
        turn=event["turn"],
        output=None if told else text,
        error=text if told or failed else None,
        marked=event["status"] != _UNMARKED,
        failed=failed,
    )


def _format_answer(answer: dict[str, Any]) -> str:
    if len(answer) == 1:
        (only,) = answer.values()
        if isinstance(only, str):
            return only
    return to_json(answer, fallback=str).decode()
