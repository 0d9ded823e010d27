"""A conversation as checks read it: turns numbered as in an evaluation record, and tool calls.

A turn is all consecutive messages of one side. Turns count from 1, the user's and the model's
alike; system messages are not counted.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic_core import to_json

from assay.models import Boundary, Message, Sample, ToolCall
from assay.models.wire.eval_turns import SEPARATOR, Turn, Turns

_MARKS = frozenset({"failed", "is_error", "status"})
"""Details of a tool's message that say whether the tool failed."""

_UNMARKED = "unmarked"


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

    def turn_at(self, position: int) -> int:
        """The turn that a character belongs to."""
        return next(turn for start, turn in reversed(self.turns) if start <= position)

    @property
    def place(self) -> str:
        """Where it stands, in the words of a reason."""
        first, last = self.turns[0][1], self.turns[-1][1]
        return f"turn {first}" if first == last else f"turns {first} to {last}"


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


class Reading:
    """One sample's conversation, read once for all checks."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
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
        return [_call(event, asked) for event, asked in events]

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
        return Passage(said[-1], ((0, len(self.turns)),), "response")

    def said_in(self, number: int, what: str) -> Passage:
        """The whole text of a turn."""
        return Passage(self.turns[number - 1].text, ((0, number),), what)

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
        return Passage(SEPARATOR.join(texts), tuple(starts), what) if starts else None


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
