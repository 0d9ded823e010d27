"""Tool calls: the right tools, called with the right arguments.

The 12 requests of `tool_calls.jsonl` are our own. A row has the fields of Salesforce's public
xlam-function-calling-60k: `query`, `tools` and `answers`, the calls that are expected.

    assay eval tool_calls --agent openai:gpt-5 --dataset Salesforce/xlam-function-calling-60k

Its publisher asks you to accept the terms first: log in with `hf auth login`.

A model is offered the tools of the row. Other agents find them in `sample["tools"]`, and return
messages with their calls.
"""

import json
from collections.abc import Sequence
from typing import Any

from assay.environments import Step
from assay.runner import EvalConfig
from assay.types import Message, Metric, Sample, Score, ToolSpec

dataset = "tool_calls.jsonl"

# The names of types in rows of xlam are those of Python.
JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
}


class OfferedTools:
    """Offers the tools of a row and confirms each call. A message without a call is the end."""

    def __init__(self, sample: Sample) -> None:
        self.tools: Sequence[ToolSpec] = [ToolSpec(**each) for each in sample["tools"]]

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return ()

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return Step(terminated=True, ended_by_agent=True)
        replies = tuple(
            Message(role="tool", tool_call_id=call.id, content='{"status": "accepted"}')
            for call in action.tool_calls
        )
        return Step(replies=replies)

    async def close(self) -> None:
        return None


def score_fn(sample: Sample) -> Score:
    """Score whether the calls are exactly the expected ones, in any order."""
    defaults = {each["name"]: _read_defaults(each) for each in sample["tools"]}
    made = [
        # Arguments that are not JSON are never the expected ones.
        (call.name, {"": call.raw_arguments} if call.malformed else call.arguments)
        for message in sample.messages
        for call in message.tool_calls or ()
    ]
    expected = [(call["name"], call["arguments"]) for call in sample.ground_truth]
    left = [_normalize_call(*call, defaults) for call in made]
    missing = []
    for call in expected:
        wanted = _normalize_call(*call, defaults)
        if wanted in left:
            left.remove(wanted)
        else:
            missing.append(call)
    names = sorted(name for name, _ in made) == sorted(name for name, _ in expected)
    problems = [f"missing {_format_call(*call)}" for call in missing]
    problems += [f"not expected {_format_call(name, dict(given))}" for name, given in left]
    return Score(
        metrics=(
            Metric("calls", float(not problems), weight=1.0),
            # Tracked beside the score: the right tools, whatever their arguments.
            Metric("tools", float(names)),
        ),
        reason="; ".join(problems) or f"all {len(expected)} calls are as expected",
    )


def adapter(row: dict[str, Any]) -> Sample:
    """Read a row of xlam, whose tools and answers are JSON texts or plain values."""
    tools, answers = (
        json.loads(row[name]) if isinstance(row[name], str) else row[name]
        for name in ("tools", "answers")
    )
    return Sample(
        id=str(row.get("id", "")),
        input={"query": row["query"], "tools": [_convert_tool(each) for each in tools]},
        prompt=row["query"],
        ground_truth=answers,
    )


def _convert_tool(tool: dict[str, Any]) -> dict[str, Any]:
    given = tool.get("parameters") or {}
    schema = given if given.get("type") == "object" else _build_schema(given)
    about = tool.get("description", "")
    return {"name": tool["name"], "description": about, "parameters": schema}


def _build_schema(parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties, required = {}, []
    for name, entry in parameters.items():
        kind = str(entry.get("type", ""))
        plain = kind.partition(",")[0].partition("[")[0].strip().lower()
        properties[name] = {
            key: each for key, each in entry.items() if key in ("description", "default")
        }
        if plain in JSON_TYPES:
            properties[name]["type"] = JSON_TYPES[plain]
        if entry.get("required", "optional" not in kind and "default" not in entry):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _read_defaults(tool: dict[str, Any]) -> dict[str, Any]:
    properties = tool["parameters"].get("properties", {})
    return {name: each["default"] for name, each in properties.items() if "default" in each}


def _normalize_call(
    name: str, arguments: dict[str, Any], defaults: dict[str, dict[str, Any]]
) -> tuple[str, list[tuple[str, Any]]]:
    """Remove what does not change a call: arguments at their default, case, spaces around text."""
    own = defaults.get(name, {})
    given = {key: each for key, each in arguments.items() if key not in own or each != own[key]}
    return name, sorted((key, _normalize_value(each)) for key, each in given.items())


def _normalize_value(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().casefold()
    if isinstance(value, list):
        return [_normalize_value(each) for each in value]
    if isinstance(value, dict):
        return {key: _normalize_value(each) for key, each in value.items()}
    # True is 1 for Python, and not for a tool.
    return ("bool", value) if isinstance(value, bool) else value


def _format_call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


config = EvalConfig(name="tool_calls", score_fn=score_fn, environment=OfferedTools)
