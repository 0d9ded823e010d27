"""Parse tool calls and reasoning from the text of local models. Never raises for any text.

One table of formats. The format is detected by marks in the chat template.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal, get_args

from assay.types import ToolCall, ToolSpec

from .tool_call_json import (
    ParsedTurn,
    make_call,
    read_deepseek,
    read_hermes,
    read_llama,
    read_mistral,
)
from .tool_call_literals import read_gemma, read_python_calls
from .tool_call_tags import ArgumentTypes, read_glm_tags, read_muse_tags, read_qwen_tags

_MESSAGE = "<|message|>"
_HARMONY_MARKS = re.compile(r"<\|(?:start|end|call|return)\|>")
_MUSE_MARKS = re.compile(r"<\|(?:start|eom|eot)\|>")
_RECIPIENT = re.compile(r"(?:^|\s|assistant)to=([^\s<]++)")
_CHANNEL = re.compile(r"<\|channel\|>\s*+(\w++)")
_ANALYSIS = "analysis"


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


def _split_channels(text: str, marks: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield header and body of each message of a turn."""
    for piece in marks.split(text):
        header, mark, body = piece.partition(_MESSAGE)
        if mark:
            yield header, body
        elif header.strip() not in ("", "assistant"):
            # Text outside the format is content.
            yield "", header


def _join_channels(content: list[str], thought: list[str], calls: list[ToolCall]) -> ParsedTurn:
    return ParsedTurn("\n".join(content), tuple(calls), "\n".join(thought) if thought else None)


CallStyle = Literal[
    "hermes",
    "llama",
    "mistral",
    "deepseek",
    "qwen3.5",
    "glm4",
    "lfm2",
    "lfm2.5",
    "gemma4",
    "gpt-oss",
    "muse",
]
"""The names of the formats, as in `extra_params["tool_format"]`."""

STYLES: tuple[CallStyle, ...] = get_args(CallStyle)

_ReadCalls = Callable[[str, ArgumentTypes], ParsedTurn | None]
_ReadTurn = Callable[[str, ArgumentTypes | None], ParsedTurn]


@dataclass(frozen=True)
class _Format:
    """The turn format of a model family."""

    marks: re.Pattern[str]
    """Found in the chat templates of the family."""

    calls: _ReadCalls | None = None
    """Parses the calls after the reasoning. None if `turn` parses everything."""

    turn: _ReadTurn | None = None
    thought: tuple[str, str] = ("<think>", "</think>")
    """The marks around reasoning."""


def _ignore_types(read: Callable[[str], ParsedTurn | None]) -> _ReadCalls:
    # For formats whose calls carry their own types.
    return lambda text, types: read(text)


_ESCAPES = r"replace\(\"\\\\\", \"\\\\\\\\\"\)"
# The order matters: templates of earlier formats contain marks of later ones.
_CALL_FORMATS: dict[CallStyle, _Format] = {
    "mistral": _Format(re.compile(r"\[TOOL_CALLS\]"), _ignore_types(read_mistral)),
    "gpt-oss": _Format(re.compile(r"<\|channel\|>commentary"), turn=read_harmony),
    "muse": _Format(re.compile("<atem:invoke"), turn=read_muse),
    "gemma4": _Format(
        re.compile(r"<\|tool_call>call:"),
        _ignore_types(read_gemma),
        thought=("<|channel>thought", "<channel|>"),
    ),
    "deepseek": _Format(re.compile("<｜tool▁calls▁begin｜>"), _ignore_types(read_deepseek)),
    "lfm2": _Format(
        re.compile(rf"(?s:<\|tool_list_start\|>|{_ESCAPES}.*<\|tool_call_start\|>)"),
        _ignore_types(partial(read_python_calls, escapes=True)),
    ),
    "lfm2.5": _Format(
        re.compile(r"<\|tool_call_start\|>"),
        _ignore_types(partial(read_python_calls, escapes=False)),
    ),
    "glm4": _Format(re.compile("<arg_key>"), read_glm_tags),
    "qwen3.5": _Format(re.compile("<function="), read_qwen_tags),
    "hermes": _Format(re.compile("<tool_call>"), _ignore_types(read_hermes)),
    "llama": _Format(re.compile(r"""["']parameters["']\s*:"""), _ignore_types(read_llama)),
}


@lru_cache(maxsize=64)
def detect_call_style(template: str) -> CallStyle | None:
    """Detect the tool-call format of a chat template. None: unknown."""
    return next(
        (name for name, known in _CALL_FORMATS.items() if known.marks.search(template)), None
    )


def read_calls(text: str, style: CallStyle | None, tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
    """Parse the tool calls in `text`; the rest is content.

    If the name of a call cannot be parsed, the whole text is content. Arguments that cannot be
    parsed make a malformed call, which the environment answers with an error.
    """
    if style is None:
        return ParsedTurn(text)
    known, types = _CALL_FORMATS[style], ArgumentTypes(tools)
    if known.turn is not None:
        return known.turn(text, types)
    assert known.calls is not None
    return known.calls(text, types) or ParsedTurn(text)


def writes_channels(style: CallStyle | None) -> bool:
    """Whether special tokens separate content from reasoning."""
    return style is not None and (
        _CALL_FORMATS[style].turn is not None or _CALL_FORMATS[style].thought[0] != "<think>"
    )


def opens_reasoning(prompt: str, style: CallStyle | None) -> bool:
    """Whether a prompt ends with the opening mark of reasoning."""
    return prompt.rstrip("\n").endswith(_get_reasoning_marks(style)[0])


def knows_reasoning(template: str, style: CallStyle | None) -> bool:
    """Whether models with this template write reasoning between marks."""
    return "reasoning_content" in template or _get_reasoning_marks(style)[1] in template


def read_turn(
    text: str,
    style: CallStyle | None,
    *,
    tools: Sequence[ToolSpec],
    opened: bool,
    reasons: bool,
    cut_short: bool = False,
) -> ParsedTurn:
    """Parse a whole turn. Calls are parsed only if tools were offered.

    `opened`: the prompt already ends with the opening mark of reasoning; `reasons`: text between
    the marks is reasoning; `cut_short`: the turn was truncated, perhaps inside the reasoning.
    """
    known = None if style is None else _CALL_FORMATS[style]
    if known is not None and known.turn is not None:
        return known.turn(text, ArgumentTypes(tools) if tools else None)
    reasoning = None
    if reasons:
        reasoning, text = split_reasoning(text, opened=opened, style=style)
    written = replace(read_calls(text, style if tools else None, tools), reasoning=reasoning)
    if reasons and cut_short and written == ParsedTurn(text):
        mark, start = _get_reasoning_marks(style)[0], text.lstrip("\n")
        if opened or start.startswith(mark):
            # Truncated inside the reasoning, so the turn has no content.
            return ParsedTurn("", reasoning=start.removeprefix(mark).strip("\n"))
    return written


def split_reasoning(
    text: str, *, opened: bool, style: CallStyle | None = None
) -> tuple[str | None, str]:
    """Split reasoning from the rest. `opened`: the prompt already ends with the opening mark.

    Line breaks at the edges are dropped, since templates add them again.
    """
    start_mark, end_mark = _get_reasoning_marks(style)
    start = text.lstrip("\n")
    if not opened and not start.startswith(start_mark):
        return None, text
    thought, closed, rest = text.partition(end_mark)
    if not closed:
        return None, text
    return thought.lstrip("\n").removeprefix(start_mark).strip("\n"), rest.lstrip("\n")


def _get_reasoning_marks(style: CallStyle | None) -> tuple[str, str]:
    return ("<think>", "</think>") if style is None else _CALL_FORMATS[style].thought
