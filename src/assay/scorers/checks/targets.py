"""Targets of checks: a text of the conversation, or a part of its tool calls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

from .conversation import AgentScope, ConversationView, Passage, RecordedCall
from .yaml_node import Node

_TARGET_ROLES = {
    "prompt": "user",
    "prompt_concat": "user",
    "response": "model",
    "response_concat": "model",
}
_CALL_PARTS: dict[str, Callable[[RecordedCall], Passage | None]] = {
    "tool.name": lambda call: _build_part_passage(call, call.name, "name"),
    "tool.args": lambda call: _build_arguments_passage(call),
    "tool.output": lambda call: _build_part_passage(call, call.output, "output"),
    "tool.error": lambda call: _build_part_passage(call, call.error, "error"),
}
TARGETS = (*_TARGET_ROLES, "reasoning", *_CALL_PARTS)
# Targets that default to the main conversation: the prompts of a subagent come from an agent, and
# its response goes to one.
_MAIN_TARGETS = ("prompt", "prompt_concat", "response")


@dataclass(frozen=True)
class Scope:
    """The turn, tool and agents that a check is limited to; None is any."""

    turn: int | None = None
    """A turn of the main conversation, counted from 1, or from the end when negative. The calls of
    a subagent belong to the turn that started it."""

    tool: str | None = None
    agents: AgentScope = "all"

    def resolve_turn(self, reading: ConversationView) -> int | None:
        """Return the number of the turn, or None where the conversation has no such turn."""
        if self.turn is None:
            return None
        count = len(reading.turns)
        number = self.turn if self.turn > 0 else count + 1 + self.turn
        return number if 1 <= number <= count else None

    def calls(self, reading: ConversationView) -> list[RecordedCall]:
        """Return the calls within the scope."""
        turn = self.resolve_turn(reading)
        if self.turn is not None and turn is None:
            return []
        return [
            call
            for call in reading.list_calls(self.agents)
            if (turn is None or call.main_turn == turn)
            and (self.tool is None or call.name == self.tool)
        ]

    @property
    def words(self) -> str:
        """The limits in words, such as ` of 'bash' in turn 2 by subagents`."""
        tool = "" if self.tool is None else f" of {self.tool!r:.80}"
        turn = "" if self.turn is None else f" in turn {self.turn}"
        return tool + turn + (" by subagents" if self.agents == "subagents" else "")


@dataclass(frozen=True)
class TextTarget:
    """A named text of the conversation, or one part of its tool calls."""

    name: str
    scope: Scope

    @property
    def of_agent(self) -> bool:
        """Whether the agent produced the text."""
        return _TARGET_ROLES.get(self.name) != "user"

    @property
    def words(self) -> str:
        return f"`{self.name}`{self.scope.words}"

    def list_passages(self, reading: ConversationView) -> list[Passage]:
        """Return the passages that the target selects."""
        if part := _CALL_PARTS.get(self.name):
            parts = map(part, self.scope.calls(reading))
            return [passage for passage in parts if passage is not None]
        turn = self.scope.resolve_turn(reading)
        if self.scope.turn is not None and turn is None:
            return []
        return [
            passage
            for each in reading.list_conversations(self.scope.agents)
            for passage in self._list_conversation_passages(each, turn)
        ]

    def _list_conversation_passages(
        self, reading: ConversationView, turn: int | None
    ) -> list[Passage]:
        """Return the passages of one conversation; `turn` counts in the main conversation."""
        if reading.agent and turn is not None:
            if reading.main_turn != turn:
                return []
            turn = None  # all turns of a subagent belong to the main turn that started it
        if self.name == "reasoning":
            thoughts = (each for each in reading.thoughts if turn in (None, each.find_turn(0)))
            return [replace(each, agent=reading.agent) for each in thoughts]
        found = self._find_passage(reading, turn)
        return [] if found is None else [found]

    def _find_passage(self, reading: ConversationView, turn: int | None) -> Passage | None:
        if turn is not None:
            same_role = reading.turns[turn - 1].role == _TARGET_ROLES[self.name]
            return reading.read_turn(turn, self.name) if same_role else None
        if self.name == "response":
            return reading.response
        if self.name != "prompt":
            return reading.join_turns(_TARGET_ROLES[self.name], self.name)
        asked = [n for n, turn in enumerate(reading.turns, start=1) if turn.role == "user"]
        return reading.read_turn(asked[-1], self.name) if asked else None


def read_target(check: Node) -> TextTarget:
    """Read the target of a check with its scope; the default is `response`."""
    given = check.get("target")
    name = "response" if given is None else given.one_of(TARGETS)
    scope = read_scope(check, default="main" if name in _MAIN_TARGETS else "all")
    if scope.tool is not None and name not in _CALL_PARTS:
        raise check.at("tool").wrong(
            f"`{name}` is not a part of a tool call", hint=f"targets with a tool: {[*_CALL_PARTS]}"
        )
    return TextTarget(name, scope)


def read_scope(check: Node, *, default: AgentScope = "all") -> Scope:
    """Read the turn, the tool and the agents that a check is limited to."""
    turn = check.get("turn")
    number = None if turn is None else turn.whole_number()
    if turn is not None and number == 0:
        raise turn.wrong("turns count from 1", hint="1 is the first turn and -1 the last")
    tool = check.get("tool")
    return Scope(number, None if tool is None else tool.text(), read_agents(check, default))


def read_agents(check: Node, default: AgentScope = "all") -> AgentScope:
    """Read the agents whose conversations a check covers."""
    given = check.get("scope")
    if given is None:
        return default
    name = given.one_of(get_args(AgentScope))
    return next(each for each in get_args(AgentScope) if each == name)


def _build_arguments_passage(call: RecordedCall) -> Passage | None:
    passage = _build_part_passage(call, call.asked.arguments_text, "arguments")
    if passage is None or call.asked.malformed:
        return passage
    return replace(passage, value=call.asked.arguments)


def _build_part_passage(call: RecordedCall, text: str | None, part: str) -> Passage | None:
    if text is None:
        return None
    what = "name of a tool" if part == "name" else f"{part} of {call.name!r:.80}"
    return Passage(text, ((0, call.turn),), what, agent=call.agent)
