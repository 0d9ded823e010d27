"""Parts of an answer while it arrives, and the events that pass them on in another API."""

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

from assay.errors import WireError
from assay.types import ToolCall

from .model_request import ModelAnswer, get_free_text

AnswerPartKind = Literal["start", "text", "reasoning", "refusal", "call", "end"]
_Key = tuple[AnswerPartKind, int]


class AnswerPart(NamedTuple):
    """One piece of an answer. Pieces of the same kind and place are continued text."""

    kind: AnswerPartKind
    """`start`: the model is known. `end`: nothing is added to the part at this place."""

    text: str = ""
    """For a call, a piece of its arguments as JSON. For `start`, the name of the model."""

    place: int = 0
    """Separates the calls of an answer, and the parts of APIs that count them."""

    call_id: str | None = None
    name: str = ""
    """The name of the tool, in the first piece of a call."""

    is_whole: bool = False
    """Whether this is all of the text, after its pieces or without any, and its end."""


@dataclass
class AnswerSection:
    """The text of an answer, its reasoning or one of its calls, with all of its pieces."""

    kind: AnswerPartKind
    index: int
    """Its position in the answer that is written."""

    kind_index: int
    """The position among the sections of its kind."""

    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The pieces so far, joined."""
        return "".join(self.pieces)

    @property
    def free_text(self) -> str:
        """The text of a call to a tool that takes text, once its arguments are complete."""
        arguments = {"name": self.name, "arguments": self.text}
        return get_free_text(ToolCall.model_validate({"function": arguments}))


class AnswerWriter(ABC):
    """Writes the parts of an answer as an event stream, each as soon as it is known.

    Events of one section follow each other, as clients expect: parts of another one wait while
    the arguments of a call are incomplete. A subclass is one API.
    """

    def __init__(self, head: ModelAnswer, *, include_usage: bool = True) -> None:
        self.head = head
        """The answer without its content: what the first events contain."""

        self.include_usage = include_usage
        self.sections: list[AnswerSection] = []
        self._open: AnswerSection | None = None
        self._open_key: _Key = ("start", 0)
        # The sections so far, with the id of each call as the model's server sent it.
        self._begun_ids: dict[_Key, str | None] = {}
        self._waiting: dict[_Key, list[AnswerPart]] = {}
        self._counts: Counter[AnswerPartKind] = Counter()
        self._events: list[bytes] = []
        self._taken = 0
        self._started = False

    @abstractmethod
    def write_start(self) -> Iterator[bytes]:
        """Yield the first events."""

    @abstractmethod
    def write_section(self, section: AnswerSection) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Yield the events of a whole section: whether each contains the text, and its fields."""

    @abstractmethod
    def write_end(self, answer: ModelAnswer) -> Iterator[bytes]:
        """Yield the last events."""

    @abstractmethod
    def encode(self, fields: dict[str, Any]) -> bytes:
        """Return the event with these fields."""

    def holds_back(self, section: AnswerSection) -> bool:
        """Whether a section is a call with free text, which the model writes inside JSON."""
        return section.kind == "call" and section.name in self.head.free_text_tools

    def take(self) -> bytes:
        """Return the events since the last call."""
        events = b"".join(self._events[self._taken :])
        self._taken = len(self._events)
        return events

    @property
    def written(self) -> bytes:
        """All events so far."""
        return b"".join(self._events)

    def add(self, part: AnswerPart) -> None:
        """Write one part. Raises `WireError` if the model's server sent no text for it."""
        if type(part.text) is not str or type(part.name) is not str:
            raise WireError("a part of the stream is not text", where=part.kind)
        if not self._started:
            self._started = True
            if part.kind == "start" and part.text:
                self.head = replace(self.head, model=part.text)
            self._events.extend(self.write_start())
        key = (part.kind, part.place)
        is_open = self._open is not None and key == self._open_key
        if part.is_whole:
            if key in self._begun_ids and not is_open:
                return
            # Pieces of it that wait would be written beside it.
            self._waiting.pop(key, None)
            text = self._open.text if self._open and is_open else ""
            self.add(part._replace(text=part.text[len(text) :], is_whole=False))
            part = AnswerPart("end", place=part.place)
        if part.kind == "end":
            if self._open is not None and self._open_key[1] == part.place:
                self._close()
        elif is_open:
            self._extend(part.text)
        elif part.kind != "start" and (part.text or part.name) and not self._is_late(part, key):
            if self._waiting or not self._is_closable():
                self._waiting.setdefault(key, []).append(part)
            else:
                self._close()
                self._begin(part)

    def finish(self, answer: ModelAnswer) -> None:
        """Write the parts that wait, those that the stream of the model left out, and the end."""
        if not self._started:
            self.add(AnswerPart("start", answer.model))
        self._close()
        for parts in self._waiting.values():
            self._begin(parts[0]._replace(text="".join(part.text for part in parts)))
            self._close()
        for part in self._list_missing(answer):
            self._begin(part)
            self._close()
        self._events.extend(self.write_end(answer))

    def _list_missing(self, answer: ModelAnswer) -> Iterator[AnswerPart]:
        # Some servers send short answers, or calls, in the last event only.
        message, counts = answer.message, self._counts
        text = "".join(section.text for section in self.sections if section.kind == "text")
        if message.reasoning and not counts["reasoning"]:
            yield AnswerPart("reasoning", message.reasoning)
        if message.text.startswith(text) and message.text != text:
            yield AnswerPart("text", message.text[len(text) :])
        for call in message.tool_calls[counts["call"] :]:
            yield AnswerPart("call", call.arguments_text, call_id=call.id, name=call.name)

    def _is_late(self, part: AnswerPart, key: _Key) -> bool:
        """Whether a piece belongs to a call whose arguments were complete and written."""
        if part.kind != "call" or key not in self._begun_ids or key in self._waiting:
            return False
        # A server that repeats the name in each piece also repeats the id. The calls of Gemini
        # share one place: each has a name.
        return not part.name or (part.call_id is not None and part.call_id == self._begun_ids[key])

    def _is_closable(self) -> bool:
        section = self._open
        if section is None or section.kind != "call":
            return True
        try:
            from_json(section.text)
        except ValueError:
            return False
        return True

    def _begin(self, part: AnswerPart) -> None:
        given = part.call_id if isinstance(part.call_id, str) else None
        section = AnswerSection(
            kind=part.kind,
            index=len(self.sections),
            kind_index=self._counts[part.kind],
            call_id=given or f"call_{secrets.token_hex(8)}",
            name=part.name,
        )
        self.sections.append(section)
        self._counts[part.kind] += 1
        self._open, self._open_key = section, (part.kind, part.place)
        self._begun_ids[self._open_key] = given
        for is_text, fields in self.write_section(section):
            if is_text:
                break
            self._events.append(self.encode(fields))
        self._extend(part.text)

    def _extend(self, text: str) -> None:
        section = self._open
        assert section is not None
        section.pieces.append(text)
        if text and not self.holds_back(section):
            self._write_text(replace(section, pieces=[text]))

    def _write_text(self, section: AnswerSection) -> None:
        for is_text, fields in self.write_section(section):
            if is_text:
                self._events.append(self.encode(fields))

    def _close(self) -> None:
        section, self._open = self._open, None
        if section is None:
            return
        if section.kind == "call" and not section.text:
            section.pieces = ["{}"]
            self._write_text(section)
        elif self.holds_back(section):
            self._write_text(section)
        is_over = False
        for is_text, fields in self.write_section(section):
            if is_over and not is_text:
                self._events.append(self.encode(fields))
            is_over = is_over or is_text


def write_json_text(value: object) -> str:
    """Return a value as the text of JSON."""
    return to_json(value).decode()
