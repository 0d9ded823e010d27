"""Targets of checks: a text of the conversation, or a part of its tool calls."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from assay.types import InvalidValue

from .check_entry import CheckEntry, Given, Text, WholeNumber
from .conversation import AgentScope, AnsweredCall, ConversationView, Passage

# The side of the conversation whose turns a target reads.
_TARGET_ROLES = {
    "prompt": "user",
    "prompt_concat": "user",
    "response": "model",
    "response_concat": "model",
}
_CALL_PARTS: dict[str, Callable[[AnsweredCall], Passage | None]] = {
    "tool.name": lambda call: _build_part_passage(call, call.name, "name"),
    "tool.args": lambda call: _build_part_passage(call, call.asked.arguments_text, "arguments"),
    "tool.output": lambda call: _build_part_passage(call, call.output, "output"),
    "tool.error": lambda call: _build_part_passage(call, call.error, "error"),
}
TargetName = Literal[
    "prompt",
    "prompt_concat",
    "response",
    "response_concat",
    "reasoning",
    "tool.name",
    "tool.args",
    "tool.output",
    "tool.error",
]
# Targets that default to the main conversation: the prompts of a subagent come from an agent, and
# its response goes to one.
_MAIN_TARGETS = ("prompt", "prompt_concat", "response")


def _check_turn(number: int) -> int:
    if number == 0:
        raise InvalidValue("turns count from 1", hint="1 is the first turn and -1 the last")
    return number


Turn = Annotated[WholeNumber, AfterValidator(_check_turn)]


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

    def calls(self, reading: ConversationView) -> list[AnsweredCall]:
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


class TargetedEntry(CheckEntry):
    """A check of a named text of the conversation, or of one part of its tool calls."""

    target: TargetName = "response"
    tool: Given[Text] = None
    turn: Given[Turn] = None
    scope: Given[AgentScope] = None

    @model_validator(mode="after")
    def _tool_needs_a_part_of_a_call(self) -> Self:
        if self.tool is not None and self.target not in _CALL_PARTS:
            raise InvalidValue(
                f"`{self.target}` is not a part of a tool call",
                hint=f"targets with a tool: {[*_CALL_PARTS]}",
                place=("tool",),
            )
        return self

    @cached_property
    def limits(self) -> Scope:
        agents: AgentScope = "main" if self.target in _MAIN_TARGETS else "all"
        return Scope(self.turn, self.tool, self.scope or agents)

    @property
    def is_by_agent(self) -> bool:
        """Whether the agent produced the text."""
        return _TARGET_ROLES.get(self.target) != "user"

    def list_passages(self, reading: ConversationView) -> list[Passage]:
        """Return the passages that the target selects."""
        if part := _CALL_PARTS.get(self.target):
            parts = map(part, self.limits.calls(reading))
            return [passage for passage in parts if passage is not None]
        turn = self.limits.resolve_turn(reading)
        if self.turn is not None and turn is None:
            return []
        return [
            passage
            for each in reading.list_conversations(self.limits.agents)
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
        if self.target == "reasoning":
            thoughts = (each for each in reading.thoughts if turn in (None, each.find_turn(0)))
            return [replace(each, agent=reading.agent) for each in thoughts]
        role = _TARGET_ROLES[self.target]
        found: Passage | None
        if turn is not None:
            same_role = reading.turns[turn - 1].role == role
            found = reading.read_turn(turn, self.target) if same_role else None
        elif self.target == "response":
            found = reading.response
        elif self.target == "prompt":
            asked = [n for n, each in enumerate(reading.turns, start=1) if each.role == role]
            found = reading.read_turn(asked[-1], self.target) if asked else None
        else:
            found = reading.join_turns(role, self.target)
        return [] if found is None else [found]


def _build_part_passage(call: AnsweredCall, text: str | None, part: str) -> Passage | None:
    if text is None:
        return None
    what = "name of a tool" if part == "name" else f"{part} of {call.name!r:.80}"
    # Arguments are JSON already, unless the model wrote something else.
    parsed = call.asked.arguments if part == "arguments" and not call.asked.malformed else None
    return Passage(text, ((0, call.turn),), what, parsed, call.agent)
