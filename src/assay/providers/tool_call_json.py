"""Parsed turns, and calls as JSON between marks: Hermes and Qwen, Llama 3, Mistral, DeepSeek."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.types import ToolCall, parse_arguments

from .literals import skip_whitespace


@dataclass(frozen=True)
class ParsedTurn:
    """The parts of a turn."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None


def make_call(name: str, arguments: dict[str, Any] | str, id: str | None = None) -> ToolCall:
    """Make a tool call. Arguments as text are kept verbatim, even if malformed."""
    return ToolCall.model_validate({"id": id, "name": name, "arguments": arguments})


def join_words(pieces: Iterable[str]) -> str:
    """Join the text around calls, without blank pieces and line breaks next to calls."""
    return "\n".join(piece.strip("\n") for piece in pieces if piece.strip())


_DECODER = json.JSONDecoder(strict=False)
_HERMES, _HERMES_END = "<tool_call>", "</tool_call>"
_HERMES_NAME = re.compile(r'\{\s*+"name"\s*+:\s*+"([^"\\\n]++)"')
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_ARGUMENTS = "[ARGS]"
_MISTRAL_ID = "[CALL_ID]"
_LLAMA_TAG = "<|python_tag|>"
_DEEPSEEK, _DEEPSEEK_ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_DEEPSEEK_CALL, _DEEPSEEK_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = "```"

MAX_BROKEN_CALLS = 100
"""Texts with more malformed calls are not parsed: each takes time linear in the whole text."""


def read_hermes(text: str) -> ParsedTurn | None:
    """Parse `<tool_call>{json}</tool_call>`. None if the name of a call cannot be parsed."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    at = broken = 0
    while (start := text.find(_HERMES, at)) >= 0:
        texts.append(text[at:start])
        call, at = read_hermes_call(text, start + len(_HERMES))
        if call is None:
            return None
        calls.append(call)
        broken += call.malformed
        if broken > MAX_BROKEN_CALLS:
            return None
    if not calls:
        return None
    # Templates write one line break between the text and the first call.
    first, rest = texts[0].removesuffix("\n"), [*texts[1:], text[at:]]
    return ParsedTurn("\n".join([first, *(piece for piece in rest if piece.strip())]), tuple(calls))


def read_hermes_call(text: str, at: int) -> tuple[ToolCall | None, int]:
    """Parse the JSON object at an index as a call; return it and its end.

    The closing tag may be missing. Invalid JSON that starts with a name is a malformed call.
    """
    start = skip_whitespace(text, at)
    try:
        # Only to find the end: a string in the JSON may contain the closing tag.
        end = _DECODER.raw_decode(text, start)[1]
    except ValueError:
        return _read_broken_hermes(text, start)
    except RecursionError:
        return None, at
    calls = _read_objects([parse_arguments(text[start:end])])
    end = skip_whitespace(text, end)
    if not calls:
        return None, at
    if end < len(text) and not text.startswith(_HERMES_END, end):
        return _read_broken_hermes(text, start)
    return calls[0], min(len(text), end + len(_HERMES_END))


def _read_broken_hermes(text: str, start: int) -> tuple[ToolCall | None, int]:
    name = _HERMES_NAME.match(text, start)
    if name is None:
        return None, start
    end = text.find(_HERMES_END, name.end())
    if end < 0:
        return make_call(name[1], text[start:]), len(text)
    return make_call(name[1], text[start:end].rstrip()), end + len(_HERMES_END)


def read_llama(text: str) -> ParsedTurn | None:
    """Parse `{"name": .., "parameters": ..}` without other text."""
    calls = _read_objects([parse_arguments(text.removeprefix(_LLAMA_TAG))])
    return ParsedTurn("", calls) if calls else None


def read_mistral(text: str) -> ParsedTurn | None:
    """Parse `[TOOL_CALLS]` before a JSON list, or before each `name[ARGS]{json}`."""
    content, mark, written = text.partition(_MISTRAL)
    if not mark:
        return None
    if written.lstrip().startswith("["):
        holder = parse_arguments(f'{{"calls": {written}}}') or {}
        listed = holder.get("calls")
        calls = _read_objects(listed if isinstance(listed, list) else [])
    else:
        calls = _read_objects(map(_read_mistral_call, written.split(_MISTRAL)))
    return ParsedTurn(content, calls) if calls else None


def read_deepseek(text: str) -> ParsedTurn | None:
    """Parse `function<sep>name` and JSON between marks, fenced (V3, R1) or not (V3.1)."""
    before, mark, written = text.partition(_DEEPSEEK)
    if not mark:
        return None
    block, _, after = written.partition(_DEEPSEEK_ALL_END)
    calls: list[ToolCall] = []
    for piece in block.split(_DEEPSEEK_CALL)[1:]:
        call = _read_deepseek_call(piece.partition(_DEEPSEEK_END)[0])
        if call is None:
            return None
        calls.append(call)
    return ParsedTurn(join_words([before, after]), tuple(calls)) if calls else None


def _read_deepseek_call(text: str) -> ToolCall | None:
    kind, mark, rest = text.partition(_DEEPSEEK_SEPARATOR)
    if not mark:
        return None
    if _FENCE not in rest:
        # V3.1 has no kind and no fence: the name is before the mark.
        if rest.lstrip().startswith("{"):
            return make_call(kind.strip(), rest.strip()) if kind.strip() else None
        name, _, arguments = rest.partition("\n")
        return make_call(name.strip(), arguments.strip() or "{") if name.strip() else None
    name, _, fenced = rest.partition(_FENCE)
    arguments = fenced.removeprefix("json").strip().removesuffix(_FENCE).strip()
    if not name.strip():
        return None
    # Empty arguments mean a truncated call, not one without arguments.
    return make_call(name.strip(), arguments or _FENCE)


def _read_mistral_call(text: str) -> dict[str, Any] | None:
    # The later form: `name[ARGS]{json}`, in some models with the id of the call in between.
    head, mark, arguments = text.partition(_MISTRAL_ARGUMENTS)
    name, _, identifier = head.partition(_MISTRAL_ID)
    if not mark:
        return None
    read = parse_arguments(arguments)
    return {
        "name": name.strip(),
        # Verbatim if they cannot be parsed.
        "arguments": arguments.strip() if read is None else read,
        "id": identifier.strip() or None,
    }


def _read_objects(written: Iterable[Mapping[str, Any] | None]) -> tuple[ToolCall, ...]:
    # All or nothing: if one object is not a call, the whole text is content.
    calls = []
    for call in written:
        if not isinstance(call, Mapping):
            return ()
        name = call.get("name")
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(name, str) or not name or not isinstance(arguments, dict | str):
            return ()
        identifier = call.get("id")
        calls.append(
            make_call(name, arguments, identifier if isinstance(identifier, str) else None)
        )
    return tuple(calls)
