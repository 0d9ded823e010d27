"""Parse tool calls with a tag per argument: Qwen 3.5 and Nemotron 3, GLM 4, Muse Glimmer.

Arguments have no quotes, so their types come from the tools. A closing tag inside a value belongs
to the value unless more of the call follows it.
"""

import re
from functools import partial
from typing import Any, NamedTuple

from assay.types import ToolCall

from .argument_types import ArgumentTypes
from .literals import skip_whitespace
from .tool_call_json import MAX_BROKEN_CALLS, ParsedTurn, join_words, make_call, read_hermes_call


class _TagFormat(NamedTuple):
    """The tags of one model family."""

    start: re.Pattern[str]
    """From the start of a call to its name, the group. Without a name, JSON follows: models
    sometimes fall back to this other form between the same tags."""

    argument: re.Pattern[str]
    """From the start of an argument to its value; the group is its name."""

    argument_end: str
    more: tuple[str, ...]
    """The tags that may follow an argument: another one, or the end of the call."""

    ends: tuple[str, ...]
    """The closing tags of a call, in order."""

    own_lines: bool = False
    """Whether each value is surrounded by line breaks."""


_QWEN = _TagFormat(
    start=re.compile(r"(?:<tool_call>\s*+)?+<function=([^>\n]++)>|<tool_call>(?=\s*+\{)"),
    argument=re.compile(r"<parameter=([^>\n]++)>"),
    argument_end="</parameter>",
    more=("<parameter=", "</function>"),
    ends=("</function>", "</tool_call>"),
    own_lines=True,
)
_GLM = _TagFormat(
    start=re.compile(r"<tool_call>(?:\s*+([^\s<{]++)|(?=\s*+\{))"),
    argument=re.compile(r"<arg_key>([^<]++)</arg_key>\s*+<arg_value>"),
    argument_end="</arg_value>",
    more=("<arg_key>", "</tool_call>"),
    ends=("</tool_call>",),
)
_MUSE = _TagFormat(
    start=re.compile(r'(?:<atem:function_calls>\s*+)?+<atem:invoke name="([^"\n]++)">'),
    argument=re.compile(r'<atem:parameter name="([^"\n]++)">'),
    argument_end="</atem:parameter>",
    more=("<atem:parameter ", "</atem:invoke>"),
    ends=("</atem:invoke>", "</atem:function_calls>"),
)


def _read_tagged_calls(text: str, types: ArgumentTypes, *, tags: _TagFormat) -> ParsedTurn | None:
    """Parse all calls of a text. None if one has no name that can be parsed."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    at = broken = 0
    while start := tags.start.search(text, at):
        texts.append(text[at : start.start()])
        if start[1] is None:
            call, at = read_hermes_call(text, start.end())
            broken += call is not None and call.malformed
        else:
            call, at = _read_tagged_call(text, start, tags, types)
        if call is None or broken > MAX_BROKEN_CALLS:
            return None
        calls.append(call)
    texts.append(text[at:])
    return ParsedTurn(join_words(texts), tuple(calls)) if calls else None


def _read_tagged_call(
    text: str, start: re.Match[str], tags: _TagFormat, types: ArgumentTypes
) -> tuple[ToolCall | None, int]:
    name, arguments = start[1].strip(), dict[str, Any]()
    at = skip_whitespace(text, start.end())
    while match := tags.argument.match(text, at):
        end = _find_value_end(text, match.end(), tags)
        if end is None:
            # Unterminated: the rest of the text belongs to this value.
            return make_call(name, text[start.start() :]), len(text)
        key, value = match[1].strip(), text[match.end() : end]
        if tags.own_lines:
            value = value.removeprefix("\n").removesuffix("\n")
        arguments[key] = types.read(name, key, value)
        at = skip_whitespace(text, end + len(tags.argument_end))
    ended = False
    for mark in tags.ends:
        if text.startswith(mark, at):
            ended, at = True, at + len(mark)
            at = skip_whitespace(text, at) if mark != tags.ends[-1] else at
    if ended:
        return make_call(name, arguments), at
    end = text.find(tags.ends[-1], at)
    end = len(text) if end < 0 else end + len(tags.ends[-1])
    return make_call(name, text[start.start() : end]), end


def _find_value_end(text: str, at: int, tags: _TagFormat) -> int | None:
    while (end := text.find(tags.argument_end, at)) >= 0:
        at = end + len(tags.argument_end)
        after = skip_whitespace(text, at)
        if after == len(text) or text.startswith(tags.more, after):
            return end
    return None


read_qwen_tags = partial(_read_tagged_calls, tags=_QWEN)
"""Parse `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`."""

read_glm_tags = partial(_read_tagged_calls, tags=_GLM)
"""Parse `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`."""

read_muse_tags = partial(_read_tagged_calls, tags=_MUSE)
"""Parse `<atem:invoke name="name"><atem:parameter name="key">value</atem:parameter>..`."""
