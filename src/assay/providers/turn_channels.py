"""Parse turns of several messages with channels or recipients: gpt-oss and Muse Glimmer."""

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
    """Parse a turn of gpt-oss: analysis is reasoning, messages to functions are calls.

    The rest is content. Without `types` no tools were offered, and calls stay content.
    """
    content, thought, calls = list[str](), list[str](), list[ToolCall]()
    for header, body in _split_channels(text, _HARMONY_MARKS):
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient and types is not None:
            calls.append(make_call(recipient[1].removeprefix("functions."), body))
        elif channel and channel[1] == _ANALYSIS and not recipient:
            thought.append(body)
        else:
            content.append(body)
    return _join_channels(content, thought, calls)


def read_muse(text: str, types: ArgumentTypes | None) -> ParsedTurn:
    """Parse a turn of Muse: reasoning goes to `self`, content to the user, calls to tools."""
    content, thought, calls = list[str](), list[str](), list[ToolCall]()
    for header, body in _split_channels(text, _MUSE_MARKS):
        recipient = match[1] if (match := _RECIPIENT.search(header)) else "user"
        if recipient == "self":
            thought.append(body)
        elif recipient == "user" or types is None:
            content.append(body)
        else:
            written = read_muse_tags(body, types)
            calls += written.calls if written else [make_call(recipient, body)]
            content += [written.content] if written and written.content else []
    return _join_channels(content, thought, calls)


def _split_channels(text: str, marks: re.Pattern[str]) -> Iterator[_ChannelMessage]:
    for piece in marks.split(text):
        header, mark, body = piece.partition(_MESSAGE)
        if mark:
            yield _ChannelMessage(header, body)
        elif header.strip() not in ("", "assistant"):
            # Text outside the format is content.
            yield _ChannelMessage("", header)


def _join_channels(content: list[str], thought: list[str], calls: list[ToolCall]) -> ParsedTurn:
    return ParsedTurn("\n".join(content), tuple(calls), "\n".join(thought) if thought else None)
