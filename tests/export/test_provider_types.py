"""Rows for OpenAI and Fireworks, held against the types of the providers' own packages.

Neither package has a type for a whole row of a fine-tuning file. Messages, tools and graders have
types; the keys around them are those of the published file formats.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from assay.export import export_samples
from assay.types import EvaluateResult, Message, Sample, Trajectory
from make import answered, asked, called, said

TOOL = {
    "name": "look",
    "description": "Look around.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}
BARE = {"name": "now"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def scored(name: str, *messages: Message, prompt: int, score: float = 1.0) -> Sample:
    return Sample(
        id=name,
        prompt=list(messages[:prompt]),
        ground_truth={"answer": 7},
        trajectory=Trajectory(messages=list(messages), tools=[TOOL, BARE]),
        score=EvaluateResult(score=score),
        status="completed",
    )


LOOKED = scored(
    "looked",
    Message(role="developer", content="Be brief."),
    Message(role="user", content=[{"type": "text", "text": "Where?"}, IMAGE], name="Ann"),
    said("Shown before."),
    asked("And now?"),
    said("I look.", called("look", "", at="north"), called("look", "b", at="south")),
    answered("snow", ""),
    answered("sand", "b"),
    Message(role="assistant", content="There.", reasoning="Hm.", name="guide"),
    prompt=4,
)
ANSWERS = [
    scored("one", asked("1 + 6?"), said("7"), prompt=1),
    scored("one", asked("1 + 6?"), said("8"), prompt=1, score=0.0),
]


def export(folder: Path, form: str, *samples: Sample) -> list[dict[str, Any]]:
    path = folder / f"{form}.jsonl"
    report = export_samples(list(samples), path, form)
    assert report.rows, report
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check(value: Any, kind: Any) -> None:
    """Raise unless a value is of a type, with no key that the type does not have."""
    assert _read(TypeAdapter(kind).validate_python(value)) == value


def _read(value: Any) -> Any:
    # A list in a typed dictionary is validated as it is gone through.
    if isinstance(value, Mapping):
        return {key: _read(each) for key, each in value.items()}
    iterates = isinstance(value, Iterable) and not isinstance(value, str)
    return [_read(each) for each in value] if iterates else value


def check_openai(row: Mapping[str, Any], *, messages: str = "messages") -> None:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

    # `weight` is a key of fine-tuning files alone.
    given = [{k: v for k, v in each.items() if k != "weight"} for each in row[messages]]
    check(given, list[ChatCompletionMessageParam])
    check(row.get("tools", []), list[ChatCompletionToolParam])


def test_supervised_rows_are_of_openais_types(tmp_path: Path) -> None:
    for row in export(tmp_path, "openai-sft", LOOKED, *ANSWERS):
        assert row.keys() <= {"messages", "tools", "parallel_tool_calls"}
        check_openai(row)


def test_preferences_are_of_openais_types(tmp_path: Path) -> None:
    (row,) = export(tmp_path, "openai-dpo", *ANSWERS)

    assert row.keys() == {"input", "preferred_output", "non_preferred_output"}
    check_openai(row["input"])
    for side in ("preferred_output", "non_preferred_output"):
        check_openai(row, messages=side)


def test_prompts_and_their_grader_are_of_openais_types(tmp_path: Path) -> None:
    from openai.types.graders import PythonGraderParam

    for row in export(tmp_path, "openai-rft", LOOKED, *ANSWERS):
        check_openai(row)
    check(json.loads((tmp_path / "openai-rft.grader.json").read_text()), PythonGraderParam)


def test_prompts_are_of_the_types_of_fireworks(tmp_path: Path) -> None:
    from fireworks.types.shared_params import ChatCompletionTool, ChatMessage

    for row in export(tmp_path, "fireworks-rft", LOOKED, *ANSWERS):
        check(row["messages"], list[ChatMessage])
        check(row["tools"], list[ChatCompletionTool])


def test_the_check_says_no() -> None:
    with pytest.raises(ValidationError):
        check_openai({"messages": [{"role": "tool", "content": "x"}]})
    with pytest.raises(AssertionError):
        check_openai({"messages": [{"role": "user", "content": "x", "mood": "fine"}]})
    with pytest.raises(ValidationError):
        check_openai({"messages": [], "tools": [{"type": "function", "function": {}}]})
