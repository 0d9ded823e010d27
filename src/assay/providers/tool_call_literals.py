"""Parse tool calls with Python literals (LFM2), and with Gemma's own quotes."""

import re
from typing import Any

from assay.types import ToolCall

from .literals import LiteralReader, check_storable, skip_whitespace
from .tool_call_json import ParsedTurn, join_words, make_call

_CallAndEnd = tuple[ToolCall | None, int]

# LFM2: <|tool_call_start|>[name(argument='text', other=1)]<|tool_call_end|>

_LFM_START, _LFM_END = "<|tool_call_start|>", "<|tool_call_end|>"
_CALL_NAME = re.compile(r"\s*+([^\W\d][\w.\-]*+)\s*+\(")
_ARGUMENT = re.compile(r"\s*+([^\W\d][\w\-]*+)\s*+=\s*+")
# The quote that ends a string with unescaped quotes: an argument, a call or the end of the list
# follows.
_RAW_END = re.compile(
    r"'(?=\s*+(?:,\s*+[^\W\d][\w\-]*+\s*+=|\)\s*+(?:,\s*+[^\W\d][\w.\-]*+\s*+\(|\]?\s*+(?:"
    + re.escape(_LFM_END)
    + r"|\Z))))"
)


class _UnterminatedString(ValueError):
    """A string without an end: everything after it belongs to it."""


def read_python_calls(text: str, *, escapes: bool) -> ParsedTurn | None:
    """Parse Python calls. `escapes`: quotes inside strings are escaped with a backslash."""
    literals = LiteralReader(text)
    texts, calls, at = [], list[ToolCall](), 0
    while (start := text.find(_LFM_START, at)) >= 0:
        texts.append(text[at:start])
        at = skip_whitespace(text, start + len(_LFM_START))
        at += text.startswith("[", at)
        more = True
        while more:
            call, at = _read_python_call(literals, at, escapes=escapes)
            if call is None:
                return None
            calls.append(call)
            at = skip_whitespace(text, at)
            more = text.startswith(",", at)
            at += more
        at = skip_whitespace(text, at + text.startswith("]", at))
        at += len(_LFM_END) if text.startswith(_LFM_END, at) else 0
    texts.append(text[at:])
    return ParsedTurn(join_words(texts), tuple(calls)) if calls else None


def _read_python_call(literals: LiteralReader, at: int, *, escapes: bool) -> _CallAndEnd:
    match = _CALL_NAME.match(literals.text, at)
    if match is None:
        return None, at
    try:
        arguments, end = _read_arguments(literals, match.end(), escapes=escapes)
        return make_call(match[1], check_storable(arguments)), end
    except ValueError as error:
        end = (
            -1
            if isinstance(error, _UnterminatedString)
            else literals.text.find(_LFM_END, match.end())
        )
        end = len(literals.text) if end < 0 else end
        return make_call(match[1], literals.text[match.end() - 1 : end].removesuffix("]")), end


def _read_arguments(
    literals: LiteralReader, at: int, *, escapes: bool
) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    text, at = literals.text, skip_whitespace(literals.text, at)
    while not text.startswith(")", at):
        match = _ARGUMENT.match(text, at)
        if match is None:
            raise ValueError(f"no argument at {at}")
        if not escapes and text.startswith("'", match.end()):
            end = _RAW_END.search(text, match.end() + 1)
            if end is None:
                raise _UnterminatedString(f"a string without an end at {at}")
            found[match[1]], at = text[match.end() + 1 : end.start()], end.end()
        else:
            found[match[1]], at = literals.read(match.end())
        at = skip_whitespace(text, at)
        if text.startswith(",", at):
            at = skip_whitespace(text, at + 1)
        elif not text.startswith(")", at):
            raise ValueError(f"no end of the arguments at {at}")
    return found, at + 1


# Gemma 4: <|tool_call>call:name{argument:<|"|>text<|"|>,other:1}<tool_call|>

_GEMMA_START, _GEMMA_END = "<|tool_call>", "<tool_call|>"
_GEMMA_NAME = re.compile(r"\s*+call:\s*+([^\s{<]++)\s*+(?={)")


def read_gemma(text: str) -> ParsedTurn | None:
    """Parse calls of Gemma 4: keys without quotes, strings between special marks."""
    literals = LiteralReader(text, quote='<|"|>', bare_keys=True)
    texts, calls, at = [], list[ToolCall](), 0
    while (start := text.find(_GEMMA_START, at)) >= 0:
        texts.append(text[at:start])
        match = _GEMMA_NAME.match(text, start + len(_GEMMA_START))
        if match is None:
            return None
        try:
            found, end = literals.read_mapping(match.end())
            end = skip_whitespace(text, end)
            if end < len(text) and not text.startswith(_GEMMA_END, end):
                raise ValueError(f"no end of the call at {end}")
            arguments: dict[str, Any] | str = check_storable(found)
        except ValueError:
            # A malformed call: its arguments stay text.
            end = text.find(_GEMMA_END, match.end())
            end = len(text) if end < 0 else end
            arguments = text[match.end() : end]
        calls.append(make_call(match[1], arguments))
        at = min(len(text), end + len(_GEMMA_END))
    texts.append(text[at:])
    return ParsedTurn(join_words(texts), tuple(calls)) if calls else None
