"""Finds the tools that a sample offered to the model, in OpenAI's format."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, ToolSpec

from .conversion import (
    Dropped,
    expect_mapping,
    make_storable,
    read_items,
    refuse_deep_nesting,
    validate_wire,
)

_UNKNOWN_TOOLS_NOTE = "tools are called, but the sample does not record which tools were offered"


def find_tools(sample: Sample) -> list[dict[str, Any]]:
    """Return the tools of a sample as `{"type": "function", "function": …}`; may be empty.

    They are read from `tools` in the trajectory, the dataset row or the metadata.
    """
    extra = (sample.trajectory.__pydantic_extra__ or {}) if sample.trajectory is not None else {}
    # The trajectory comes first: a rollout may offer other tools than the dataset row lists.
    for place, holder in (
        ("trajectory", extra),
        ("input", sample.input),
        ("metadata", sample.metadata),
    ):
        if holder.get("tools"):
            return read_tools(holder["tools"], f"sample {sample.id}: {place}.tools")
    return []


def read_tools(given: object, where: str) -> list[dict[str, Any]]:
    """Return tools in OpenAI's format, from that format, `ToolSpec`s, or JSON text of either."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise WireError("the tools are not JSON", where=where) from None
    with refuse_deep_nesting(where):
        return read_items(given, where, _read_tool_schema)


def _read_tool_schema(given: object, where: str) -> dict[str, Any]:
    if isinstance(given, ToolSpec):
        given = given.model_dump()
    data = expect_mapping(given, where)
    function = data.get("function")
    spec = validate_wire(ToolSpec, function if isinstance(function, Mapping) else data, where)
    # The original, not the validated spec: defaults that the model never saw must not appear.
    written = make_storable(dict(function if isinstance(function, Mapping) else data))
    written.pop("type", None)
    written.setdefault("parameters", spec.parameters)
    return {"type": "function", "function": written}


def write_tools_json(tools: list[dict[str, Any]]) -> str:
    """Return tools as JSON text."""
    # A column of schemas has no common type, a column of text has.
    return json.dumps(tools, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def report_unknown_tools(
    messages: Iterable[Message], tools: list[dict[str, Any]], dropped: list[Dropped]
) -> None:
    """Report tool calls of a sample without known tools."""
    if not tools and any(message.tool_calls for message in messages):
        dropped.append(Dropped("tools", _UNKNOWN_TOOLS_NOTE))
