"""Turns of several messages, each with a channel or a recipient: gpt-oss and Muse Glimmer."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from assay.types import ToolCall

from .argument_types import ArgumentTypes
from .rendered_turn import ParsedTurn, make_call
from .tool_call_tags import read_muse_tags

_MESSAGE = "<|message|>"
_HARMONY_MARKS = re.compile(r"<\|(?:start|end|call|return)\|>")
_MUSE_MARKS = re.compile(r"<\|(?:start|eom|eot)\|>")
_RECIPIENT = re.compile(r"(?:^|\s|assistant)to=([^\s<]++)")
_CHANNEL = re.compile(r"<\|channel\|>\s*+(\w++)")
_ANALYSIS = "analysis"


class _ChannelMessage(NamedTuple):
    header: str
    body: str


def read_harmony(text: str, types: ArgumentTypes | None) -> ParsedTurn:
    """Analysis is reasoning, what goes to a function is a call, all else is said.

    Without `types` no tools were offered, and calls stay what the model said.
    """
    said, thought, calls = list[str](), list[str](), list[ToolCall]()
    for header, body in _split_channels(text, _HARMONY_MARKS):
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient and types is not None:
            calls.append(make_call(recipient[1].removeprefix("functions."), body))
        elif channel and channel[1] == _ANALYSIS and not recipient:
            thought.append(body)
        else:
            said.append(body)
    return _join_channels(said, thought, calls)


def read_muse(text: str, types: ArgumentTypes | None) -> ParsedTurn:
    """What goes to `self` is reasoning, what goes to the user is said, all else is a call."""
    said, thought, calls = list[str](), list[str](), list[ToolCall]()
    for header, body in _split_channels(text, _MUSE_MARKS):
        recipient = match[1] if (match := _RECIPIENT.search(header)) else "user"
        if recipient == "self":
            thought.append(body)
        elif recipient == "user" or types is None:
            said.append(body)
        else:
            written = read_muse_tags(body, types)
            calls += written.calls if written else [make_call(recipient, body)]
            said += [written.content] if written and written.content else []
    return _join_channels(said, thought, calls)


def _split_channels(text: str, marks: re.Pattern[str]) -> Iterator[_ChannelMessage]:
    for piece in marks.split(text):
        header, mark, body = piece.partition(_MESSAGE)
        if mark:
            yield _ChannelMessage(header, body)
        elif header.strip() not in ("", "assistant"):
            # No message by the format: what the model said all the same.
            yield _ChannelMessage("", header)


def _join_channels(said: list[str], thought: list[str], calls: list[ToolCall]) -> ParsedTurn:
    return ParsedTurn("\n".join(said), tuple(calls), "\n".join(thought) if thought else None)
