"""What a check reads: a text of the conversation, or a part of its tool calls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

from .conversation import Agents, Call, Passage, Reading
from .yaml_node import Located

_SIDES = {
    "prompt": "user",
    "prompt_concat": "user",
    "response": "model",
    "response_concat": "model",
}
_PARTS: dict[str, Callable[[Call], Passage | None]] = {
    "tool.name": lambda call: _part(call, call.name, "name"),
    "tool.args": lambda call: _arguments(call),
    "tool.output": lambda call: _part(call, call.output, "output"),
    "tool.error": lambda call: _part(call, call.error, "error"),
}
TARGETS = (*_SIDES, "reasoning", *_PARTS)
_OF_MAIN = ("prompt", "prompt_concat", "response")
"""Targets that mean the main conversation: a subagent is asked by an agent, and answers to it."""


@dataclass(frozen=True)
class Scope:
    """Which turn, tool and agents a check is about; None is any."""

    turn: int | None = None
    """Of the main conversation, counted from 1, or from the end when below 0. What a subagent did
    belongs to the turn that started it."""

    tool: str | None = None
    agents: Agents = "all"

    def turn_of(self, reading: Reading) -> int | None:
        """The number of the turn, or None where the conversation has no such turn."""
        if self.turn is None:
            return None
        count = len(reading.turns)
        number = self.turn if self.turn > 0 else count + 1 + self.turn
        return number if 1 <= number <= count else None

    def calls(self, reading: Reading) -> list[Call]:
        """The calls that the check is about."""
        turn = self.turn_of(reading)
        if self.turn is not None and turn is None:
            return []
        return [
            call
            for call in reading.calls_by(self.agents)
            if (turn is None or call.main_turn == turn)
            and (self.tool is None or call.name == self.tool)
        ]

    @property
    def words(self) -> str:
        """` of 'bash' in turn 2 by subagents`, as far as it is bounded."""
        tool = "" if self.tool is None else f" of {self.tool!r:.80}"
        turn = "" if self.turn is None else f" in turn {self.turn}"
        return tool + turn + (" by subagents" if self.agents == "subagents" else "")


@dataclass(frozen=True)
class Target:
    """A named text of the conversation, or one part of its tool calls."""

    name: str
    scope: Scope

    @property
    def of_agent(self) -> bool:
        """Whether it is something that the agent did."""
        return _SIDES.get(self.name) != "user"

    @property
    def words(self) -> str:
        return f"`{self.name}`{self.scope.words}"

    def passages(self, reading: Reading) -> list[Passage]:
        """What there is to read."""
        if part := _PARTS.get(self.name):
            parts = map(part, self.scope.calls(reading))
            return [passage for passage in parts if passage is not None]
        turn = self.scope.turn_of(reading)
        if self.scope.turn is not None and turn is None:
            return []
        return [
            passage
            for each in reading.conversations(self.scope.agents)
            for passage in self._passages_of(each, turn)
        ]

    def _passages_of(self, reading: Reading, turn: int | None) -> list[Passage]:
        """The passages of one conversation; `turn` is one of the main conversation."""
        if reading.agent and turn is not None:
            if reading.main_turn != turn:
                return []
            turn = None
        if self.name == "reasoning":
            thoughts = (each for each in reading.thoughts if turn in (None, each.turn_at(0)))
            return [replace(each, agent=reading.agent) for each in thoughts]
        found = self._said(reading) if turn is None else self._said_in(reading, turn)
        return [] if found is None else [found]

    def _said(self, reading: Reading) -> Passage | None:
        if self.name == "response":
            return reading.response
        if self.name != "prompt":
            return reading.joined(_SIDES[self.name], self.name)
        asked = [n for n, turn in enumerate(reading.turns, start=1) if turn.role == "user"]
        return reading.said_in(asked[-1], self.name) if asked else None

    def _said_in(self, reading: Reading, turn: int) -> Passage | None:
        if reading.turns[turn - 1].role != _SIDES[self.name]:
            return None
        return reading.said_in(turn, self.name)


def read_target(check: Located) -> Target:
    """The target that a check names, with its scope. `response` where it names none."""
    given = check.get("target")
    name = "response" if given is None else given.one_of(TARGETS)
    scope = read_scope(check, default="main" if name in _OF_MAIN else "all")
    if scope.tool is not None and name not in _PARTS:
        raise check.at("tool").wrong(
            f"`{name}` is not a part of a tool call", hint=f"targets with a tool: {[*_PARTS]}"
        )
    return Target(name, scope)


def read_scope(check: Located, *, default: Agents = "all") -> Scope:
    """The turn, the tool and the agents that a check is bounded to."""
    turn = check.get("turn")
    number = None if turn is None else turn.whole_number()
    if turn is not None and number == 0:
        raise turn.wrong("turns count from 1", hint="1 is the first turn and -1 the last")
    tool = check.get("tool")
    return Scope(number, None if tool is None else tool.text(), read_agents(check, default))


def read_agents(check: Located, default: Agents = "all") -> Agents:
    """Whose conversations a check reads."""
    given = check.get("scope")
    if given is None:
        return default
    name = given.one_of(get_args(Agents))
    return next(each for each in get_args(Agents) if each == name)


def _arguments(call: Call) -> Passage | None:
    passage = _part(call, call.asked.arguments_text, "arguments")
    if passage is None or call.asked.malformed:
        return passage
    return replace(passage, value=call.asked.arguments)


def _part(call: Call, text: str | None, part: str) -> Passage | None:
    if text is None:
        return None
    what = "name of a tool" if part == "name" else f"{part} of {call.name!r:.80}"
    return Passage(text, ((0, call.turn),), what, agent=call.agent)
