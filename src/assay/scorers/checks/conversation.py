"""The view of a conversation that checks read: numbered turns and tool calls.

A turn is all consecutive messages of one side, numbered from 1 as in an evaluation record. System
messages are not counted. A subagent's session is a conversation of its own, inside the turn whose
call started it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic_core import to_json

from assay.formats import TEXT_SEPARATOR, EvalTurn, EvalTurns
from assay.types import Boundary, Sample, ToolCall

from ..subagents import UnreadableSubagent, map_started_subagents, read_subagents

# Any of these in the details of a tool's message records whether the tool failed.
_STATUS_KEYS = frozenset({"failed", "is_error", "status"})

_UNMARKED = "unmarked"
# Nesting of subagents. A record may nest without end; checks that need deeper sessions are
# unscored rather than decided by a part of the record.
_MAX_CHECKED_DEPTH = 8

AgentScope = Literal["all", "main", "subagents"]
"""The agents whose conversations a check reads."""


@dataclass(frozen=True)
class Passage:
    """A text and its position in the conversation."""

    text: str
    turns: tuple[tuple[int, int], ...]
    """Pairs of (first character, turn), in ascending order."""

    what: str
    """The name of the text in reasons: `response`, `output of 'bash'`."""

    value: Any = None
    """The JSON value of the text, where the record has one."""

    agent: str = ""
    """The subagent's name in reasons; empty for the main agent."""

    def find_turn(self, position: int) -> int:
        """Return the turn that a character belongs to."""
        return next(turn for start, turn in reversed(self.turns) if start <= position)

    def describe_place(self, position: int) -> str:
        """Describe the position of a character for a reason."""
        return f"turn {self.find_turn(position)}{self.agent}"

    @property
    def place(self) -> str:
        """The position in words, for a reason."""
        first, last = self.turns[0][1], self.turns[-1][1]
        turns = f"turn {first}" if first == last else f"turns {first} to {last}"
        return turns + self.agent


@dataclass(frozen=True)
class AnsweredCall:
    """A tool call and its answer."""

    name: str
    asked: ToolCall
    turn: int
    output: str | None
    error: str | None
    """The error text of the tool, or that it never answered."""

    marked: bool
    """Whether the record shows if the tool failed."""

    failed: bool
    agent: str = ""
    """The subagent's name in reasons; empty for the main agent."""

    main_turn: int | None = None
    """The turn of the main conversation that it belongs to; None where that is not recorded."""

    @property
    def place(self) -> str:
        """The position in words, for a reason."""
        return f"turn {self.turn}{self.agent}"


class ConversationView:
    """The conversation of a sample and of its subagents, parsed once for all checks."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.agent = ""
        """The subagent's name in reasons; empty for the main agent."""

        self.main_turn: int | None = None
        """The turn of the main conversation in which this one was started, where it is known."""
        self.thoughts: list[Passage] = []
        self._merged = EvalTurns({})
        self._asked: list[ToolCall] = []
        for index, message in enumerate(sample.messages):
            details = message.details or {}
            marked = message
            if message.role in ("tool", "function") and _STATUS_KEYS.isdisjoint(details):
                # `EvalTurns` takes a missing status for success. A mark of our own keeps the
                # difference between "did not fail" and "not recorded".
                unmarked = {"details": {**details, "status": _UNMARKED}}
                marked = message.model_copy(update=unmarked)
            self._merged.take(marked, f"messages[{index}]")
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
    def calls(self) -> list[AnsweredCall]:
        """Every tool call, in the order of the requests."""
        events = zip(self._merged.events, self._asked, strict=True)
        calls = (_build_recorded_call(event, asked) for event, asked in events)
        if not self.agent:
            return [replace(call, main_turn=call.turn) for call in calls]
        return [replace(call, agent=self.agent, main_turn=self.main_turn) for call in calls]

    def list_conversations(self, agents: AgentScope) -> list["ConversationView"]:
        """Return the conversations of these agents, the main one first."""
        inner = [] if agents == "main" else [each for each, _ in self._subagents[0]]
        return inner if agents == "subagents" else [self, *inner]

    def list_calls(self, agents: AgentScope) -> list[AnsweredCall]:
        """Return the calls of these agents; a subagent's follow the call that started it."""
        if agents == "main" or not self._subagents[0]:
            return [] if agents == "subagents" else self.calls
        by_call: dict[int | None, list[ConversationView]] = {}
        for inner, place in self._subagents[0]:
            by_call.setdefault(place, []).append(inner)
        calls: list[AnsweredCall] = []
        for place, call in enumerate(self.calls):
            calls.append(call)
            calls += (each for inner in by_call.get(place, ()) for each in inner.calls)
        # Subagents that no recorded call started come last.
        calls += (each for inner in by_call.get(None, ()) for each in inner.calls)
        return [call for call in calls if call.agent] if agents == "subagents" else calls

    @cached_property
    def _subagents(self) -> tuple[list[tuple["ConversationView", int | None]], str | None]:
        """Every subagent's conversation with the index of the call of `calls` that led to it.

        The second value is the reason why a session could not be read, or None.
        """
        found: list[tuple[ConversationView, int | None]] = []
        try:
            # Depth first with a stack of its own, so that nesting is bounded by the limit above and
            # not by Python's recursion limit.
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
        except UnreadableSubagent as error:
            return found, str(error)
        return found, None

    def _read_started(self) -> Iterator[tuple["ConversationView", int | None]]:
        """Yield the subagents that this agent started itself, with the index of the call."""
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
        """Return the reason why checks of these agents are unscored, or None."""
        return self.unscored_reason or (None if agents == "main" else self._subagents[1])

    @property
    def unscored_reason(self) -> str | None:
        """The reason why checks of the main agent are unscored, or None."""
        failure = self.sample.failure
        # A scorer's failure leaves the conversation complete: checks can still read it.
        if failure is not None and failure.boundary is not Boundary.SCORER:
            return f"the rollout failed: {failure.kind}: {failure.message[:200]}"
        if not any(turn.role == "model" for turn in self.turns):
            return "no turn by the assistant"
        return None

    @property
    def response(self) -> Passage | None:
        """The last text of the agent; None when the last turn is the user's."""
        if not self.turns or self.turns[-1].role != "model":
            return None
        last = self.turns[-1]
        # Text before the last tool call announces the call; the answer comes after it.
        texts = last.after_tools or last.texts or [""]
        return Passage(texts[-1], ((0, len(self.turns)),), "response", agent=self.agent)

    def read_turn(self, number: int, what: str) -> Passage:
        """Return the whole text of a turn."""
        return Passage(self.turns[number - 1].text, ((0, number),), what, agent=self.agent)

    def join_turns(self, role: str, what: str) -> Passage | None:
        """Join all turns of one side into one text."""
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


def _build_recorded_call(event: dict[str, Any], asked: ToolCall) -> AnsweredCall:
    answer = event["function_response"]["response"]
    failed = bool(event["is_error"]) or event["status"] == "error"
    # The one text of the usual answer; anything else is shown as JSON.
    values = list(answer.values())
    plain = len(values) == 1 and isinstance(values[0], str)
    text = values[0] if plain else to_json(answer, fallback=str).decode()
    error_only = "error" in answer and "output" not in answer
    return AnsweredCall(
        name=event["function_call"]["name"],
        asked=asked,
        turn=event["turn"],
        output=None if error_only else text,
        error=text if error_only or failed else None,
        marked=event["status"] != _UNMARKED,
        failed=failed,
    )
