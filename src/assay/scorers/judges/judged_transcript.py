"""Render a sample for a judge: one JSON object per line, which its content cannot break."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.formats import read_tool_outcome
from assay.types import DataBlock, Message, Sample, replace_lone_surrogates

from ..subagents import find_subagents

# Characters that `isprintable` accepts although they are invisible or ambiguous: a transcript
# could hide instructions to the judge in them, or words from people who read the judgement.
_INVISIBLE_CHARACTERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\ufffd"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)

# Texts that are cut shorter than this no longer show what happened.
_MIN_TEXT_LENGTH = 200

# Approximate characters of the JSON around the texts of a line.
_LINE_OVERHEAD = 60

# Nesting of subagents, as in checks.
_MAX_SHOWN_DEPTH = 8


class TranscriptTooLong(Exception):
    """A transcript has too many messages to fit, however short each is cut."""


@dataclass(frozen=True)
class TranscriptTurn:
    """One message of a transcript, numbered from 1; those of subagents after all others."""

    number: int
    role: str
    text: str
    agent: str | None = None
    """The id of the subagent; None for the main conversation."""

    reasoning: str = ""
    tool: str | None = None
    """The tool that the text is the output of."""

    failed: bool | None = None
    """Whether the tool failed, where its answer records it."""

    exit_code: int | None = None
    calls: tuple[tuple[str, str], ...] = ()
    """Names of the called tools, with their arguments as JSON."""

    other: tuple[str, ...] = ()
    """Kinds of content that are not shown, such as an image."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that may be quoted."""
        return (self.text, self.reasoning, *(part for call in self.calls for part in call))


@dataclass(frozen=True)
class JudgedTranscript:
    """The lines of the prompt, and the turns behind them."""

    lines: tuple[str, ...]
    turns: tuple[TranscriptTurn, ...]
    reference: str | None
    left_out: int
    """Characters that were cut from the middle of long texts."""

    subagents_left_out: int = 0
    """Sessions of subagents that did not fit or cannot be read; a line of its own reports them."""


def render_transcript(
    sample: Sample,
    *,
    longest: int,
    reasoning: bool = False,
    reference: bool = False,
    subagents: bool = True,
) -> JudgedTranscript:
    """Render the transcript of a sample in at most about `longest` characters.

    The longest texts are cut first, with a mark that counts the missing characters. When there
    are too many messages, those of subagents are omitted. Raises `TranscriptTooLong` when the
    others alone are too many.
    """
    truth = sample.ground_truth if reference else None
    if truth is not None and not isinstance(truth, str):
        truth = json.dumps(truth, ensure_ascii=False, default=str)
    main = list(_build_transcript_turns(sample.messages, reasoning=reasoning))
    inner, unreadable = _read_subagent_sessions(sample) if subagents else ([], 0)
    turns = list(main)
    for child in inner:
        first = len(turns) + 1
        turns += _build_transcript_turns(
            child.messages, reasoning=reasoning, agent=child.id, first=first
        )
    try:
        return _render_lines(turns, truth, longest, unreadable)
    except TranscriptTooLong:
        if not inner:
            raise
        return _render_lines(main, truth, longest, unreadable + len(inner))


def _read_subagent_sessions(sample: Sample) -> tuple[list[Sample], int]:
    """Return the sessions of all subagents, parents first, and the number of unreadable ones."""
    found: list[Sample] = []
    unreadable = 0
    waiting = [(sample, 0)]
    while waiting:
        above, depth = waiting.pop()
        if depth:
            found.append(above)
        entries = list(find_subagents(above))
        children = [each for each in entries if isinstance(each, Sample)]
        unreadable += len(entries) - len(children)
        if depth >= _MAX_SHOWN_DEPTH:
            unreadable += len(children)
            continue
        waiting += [(child, depth + 1) for child in reversed(children)]
    return found, unreadable


def _render_lines(
    turns: list[TranscriptTurn], truth: str | None, longest: int, subagents_left_out: int
) -> JudgedTranscript:
    lengths = [len(text) for turn in turns for text in turn.texts]
    room = longest - _LINE_OVERHEAD * len(turns)
    cutter = _TextCutter(_compute_text_limit([*lengths, len(truth or "")], room))
    lines = [] if truth is None else [_encode_visible_line({"reference": cutter.cut(truth)})]
    lines += [_encode_visible_line(_build_turn_fields(turn, cutter)) for turn in turns]
    if subagents_left_out:
        lines.append(
            _encode_visible_line({"not_shown": f"sessions of {subagents_left_out} subagents"})
        )
    return JudgedTranscript(tuple(lines), tuple(turns), truth, cutter.left_out, subagents_left_out)


def _build_transcript_turns(
    messages: list[Message], *, reasoning: bool, agent: str | None = None, first: int = 1
) -> Iterator[TranscriptTurn]:
    names: dict[str, str] = {}
    for number, message in enumerate(messages, start=first):
        failed, exit_code = read_tool_outcome(message)
        names.update((call.id, call.name) for call in message.tool_calls if call.id is not None)
        blocks = message.content if isinstance(message.content, tuple) else ()
        yield TranscriptTurn(
            number=number,
            role=message.role,
            text=message.text,
            agent=agent,
            reasoning=(message.reasoning or "") if reasoning else "",
            tool=message.name or names.get(message.tool_call_id or ""),
            failed=failed,
            exit_code=exit_code,
            calls=tuple((call.name, call.arguments_text) for call in message.tool_calls),
            other=tuple(block.type for block in blocks if isinstance(block, DataBlock)),
        )


def _build_turn_fields(turn: TranscriptTurn, cutter: "_TextCutter") -> dict[str, Any]:
    fields: dict[str, Any] = {"turn": turn.number, "role": cutter.cut(turn.role)}
    if turn.agent is not None:
        fields["subagent"] = cutter.cut(turn.agent)
    if turn.tool is not None:
        fields["tool"] = cutter.cut(turn.tool)
    if turn.failed is not None:
        fields["failed"] = turn.failed
    if turn.exit_code is not None:
        fields["exit_code"] = turn.exit_code
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


def _encode_visible_line(fields: dict[str, Any]) -> str:
    """Encode one line of JSON with invisible characters escaped."""
    text = replace_lone_surrogates(json.dumps(fields, ensure_ascii=False))
    unseen = [each for each in set(text) if not each.isprintable() or each in _INVISIBLE_CHARACTERS]
    # JSON escapes characters beyond U+FFFF as a surrogate pair, and does not escape U+007F.
    escapes = {ord(each): json.dumps(each)[1:-1] for each in unseen} | {0x7F: "\\u007f"}
    return text.translate(escapes)


def _compute_text_limit(lengths: list[int], room: int) -> int | None:
    """Return the length to cut texts to so that all fit; None when they fit uncut."""
    # Short texts are kept whole; the room that they leave is shared by the longer ones.
    left = room
    for index, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - index)
        if length > share:
            if share < _MIN_TEXT_LENGTH:
                raise TranscriptTooLong
            return share
        left -= length
    if left < 0:
        raise TranscriptTooLong
    return None


class _TextCutter:
    """Cuts texts in the middle and counts the omitted characters."""

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
