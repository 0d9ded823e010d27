"""Parse arguments that a model wrote as plain text by the types of the tool's schema."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from assay.types import ToolSpec

from .literals import LiteralReader, check_storable

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
