"""A sample as a judge is shown it: one JSON object a line, which nothing inside can end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.models import DataBlock, Message, Sample
from assay.models.lenient import well_formed

_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\ufffd"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""What counts as printable and is not seen, or is seen as something else."""

_LEAST = 200
"""A text is not cut shorter than this."""

_OVERHEAD = 60
"""Characters of a line beside what was said."""


class TooLong(Exception):
    """A transcript has too many messages to be shown, however short each is cut."""


@dataclass(frozen=True)
class Turn:
    """One message of a transcript, numbered from 1."""

    number: int
    role: str
    text: str
    reasoning: str = ""
    tool: str | None = None
    """Whose output the text is."""

    calls: tuple[tuple[str, str], ...] = ()
    """Tools that were called, with their arguments as JSON."""

    other: tuple[str, ...] = ()
    """Kinds of content that are not shown, such as an image."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that may be quoted from it."""
        return (self.text, self.reasoning, *(part for call in self.calls for part in call))


@dataclass(frozen=True)
class Shown:
    """The lines that a judge is shown, and what they were made from."""

    lines: tuple[str, ...]
    turns: tuple[Turn, ...]
    reference: str | None
    left_out: int
    """Characters that were cut from the middle of long texts."""


def show(
    sample: Sample, *, longest: int, reasoning: bool = False, reference: bool = False
) -> Shown:
    """The transcript of a sample in about `longest` characters at most.

    The longest texts are cut first, and each says how much is missing. Raises `TooLong` when even
    that does not help.
    """
    turns = tuple(_turns(sample.messages, reasoning=reasoning))
    truth = _reference(sample.ground_truth) if reference else None
    lengths = [len(text) for turn in turns for text in turn.texts]
    room = longest - _OVERHEAD * len(turns)
    cutter = _Cutter(_cap([*lengths, len(truth or "")], room))
    lines = [] if truth is None else [_line({"reference": cutter.cut(truth)})]
    lines += [_line(_fields(turn, cutter)) for turn in turns]
    return Shown(tuple(lines), turns, truth, cutter.left_out)


def _turns(messages: list[Message], *, reasoning: bool) -> Iterator[Turn]:
    names: dict[str, str] = {}
    for number, message in enumerate(messages, start=1):
        names.update((call.id, call.name) for call in message.tool_calls if call.id is not None)
        blocks = message.content if isinstance(message.content, tuple) else ()
        yield Turn(
            number=number,
            role=message.role,
            text=message.text,
            reasoning=(message.reasoning or "") if reasoning else "",
            tool=message.name or names.get(message.tool_call_id or ""),
            calls=tuple((call.name, call.arguments_text) for call in message.tool_calls),
            other=tuple(block.type for block in blocks if isinstance(block, DataBlock)),
        )


def _reference(truth: Any) -> str | None:
    if truth is None:
        return None
    if isinstance(truth, str):
        return truth
    return json.dumps(truth, ensure_ascii=False, default=str)


def _fields(turn: Turn, cutter: "_Cutter") -> dict[str, Any]:
    fields: dict[str, Any] = {"turn": turn.number, "role": cutter.cut(turn.role)}
    if turn.tool is not None:
        fields["tool"] = cutter.cut(turn.tool)
    if turn.reasoning:
        fields["reasoning"] = cutter.cut(turn.reasoning)
    if turn.text:
        fields["text"] = cutter.cut(turn.text)
    if turn.calls:
        fields["tool_calls"] = [
            {"name": cutter.cut(name), "arguments": cutter.cut(arguments)}
            for name, arguments in turn.calls
        ]
    if turn.other:
        fields["not_shown"] = list(turn.other)
    return fields


def _line(fields: dict[str, Any]) -> str:
    """One line of JSON in which everything that is there can be seen."""
    text = well_formed(json.dumps(fields, ensure_ascii=False))
    unseen = [each for each in set(text) if not each.isprintable() or each in _BLANK]
    return text.translate({ord(each): _numbered(each) for each in unseen})


def _numbered(character: str) -> str:
    # As JSON spells it, in two halves beyond the first 65,536 characters.
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _cap(lengths: list[int], room: int) -> int | None:
    """The longest a text may be so that all fit; None when they do."""
    left = room
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            if share < _LEAST:
                raise TooLong
            return share
        left -= length
    if left < 0:
        raise TooLong
    return None


class _Cutter:
    """Cuts texts in the middle, and counts what is missing."""

    def __init__(self, cap: int | None) -> None:
        self._cap = cap
        self.left_out = 0

    def cut(self, text: str) -> str:
        if self._cap is None or len(text) <= self._cap:
            return text
        half = self._cap // 2
        missing = len(text) - 2 * half
        self.left_out += missing
        return f"{text[:half]}[… {missing} characters are not shown …]{text[-half:]}"
