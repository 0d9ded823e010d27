"""Parse tool calls with a tag per argument: Qwen 3.5 and Nemotron 3, GLM 4, Muse Glimmer.

Arguments have no quotes, so their types come from the tools. A closing tag inside a value belongs
to the value unless more of the call follows it.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic_core import from_json

from assay.types import ToolCall, ToolSpec

from .literals import LiteralReader, check_storable, skip_whitespace
from .tool_call_json import MAX_BROKEN_CALLS, ParsedTurn, join_words, make_call, read_hermes_call

# Schemas may refer to themselves: `$ref` is followed at most this often.
_MAX_REF_DEPTH = 8
_PYTHON_CONSTANTS = {"True": True, "False": False, "None": None}


class ArgumentTypes:
    """The argument types of the offered tools."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools}

    def read(self, tool: str, argument: str, text: str) -> Any:
        """Return the value of `text`, or the text itself if the schema wants a string.

        Templates write strings without quotes, so `7` is a number or a string: the schema decides.
        Without a schema, any JSON value other than a string is parsed as JSON.
        """
        schema = self._schemas.get(tool, {})
        properties = schema.get("properties")
        own = properties.get(argument) if isinstance(properties, Mapping) else None
        types = _find_schema_types(own, schema, _MAX_REF_DEPTH)
        if types == {"string"}:
            return text
        try:
            value = _parse_argument(text.strip())
        except ValueError:
            return text
        if isinstance(value, str):
            return text
        if types is not None and "string" in types and not types & _find_value_types(value):
            return text
        return value


def _find_schema_types(schema: Any, root: Mapping[str, Any], references: int) -> set[str] | None:
    # None: any type, or unknown.
    if not isinstance(schema, Mapping):
        return None
    if isinstance(reference := schema.get("$ref"), str) and references:
        found: Any = root
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return _find_schema_types(found, root, references - 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {each for each in kind if isinstance(each, str)} or None
    if "const" in schema:
        return _find_value_types(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        return set().union(*map(_find_value_types, values)) or None
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list) and references:
            allowed = [_find_schema_types(choice, root, references - 1) for choice in choices]
            known = [each for each in allowed if each is not None]
            return set().union(*known) if len(known) == len(allowed) and known else None
    return None


def _find_value_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"integer", "number"} if value.is_integer() else {"number"}
    kinds = {str: "string", list: "array", dict: "object", type(None): "null"}
    return {kinds[type(value)]}


def _parse_argument(text: str) -> Any:
    # Small models often write Python literals where JSON is due.
    if text in _PYTHON_CONSTANTS:
        return _PYTHON_CONSTANTS[text]
    try:
        value = from_json(text, allow_inf_nan=False)
        # A number such as 1e999 is parsed as infinity: only the second pass rejects it.
        return check_storable(value) if isinstance(value, float | list | dict) else value
    except ValueError:
        if text[:1] not in ("[", "{"):
            raise
    return LiteralReader(text).read_whole()


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
