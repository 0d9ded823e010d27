"""Definitions: `type` decides, and a broken agent is an error, never something else."""

from typing import Any

import pytest
from pydantic import ValidationError

from assay.types.manifest import (
    AgentDefinition,
    InlineTool,
    Manifest,
    RemoteTool,
    SkillDefinition,
    ToolDefinition,
)

AGENT: dict[str, Any] = {"type": "agent", "id": "a", "name": "A", "role": "r", "goal": "g"}


def defined(definition: Any) -> Any:
    return Manifest(definitions={"a": definition}).definitions["a"]


def test_an_agent_has_all_fields_of_the_specification() -> None:
    agent = defined(
        {
            **AGENT,
            "description": "d",
            "backstory": "b",
            "model": "gpt-4",
            "tools": [
                "search",
                {"type": "remote", "uri": "mcp://tools/search", "hash": "ab"},
                {
                    "type": "inline",
                    "name": "add",
                    "description": "Adds.",
                    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
                },
            ],
            "knowledge": ["notes.md"],
            "skills": ["sums"],
            "context_strategy": "hybrid",
            "interface": {"inputs": {"q": {"$ref": "#/$defs/q"}}},
            "capabilities": {"streaming": True},
            "runtime": {"env": ["A"]},
            "resources": {"model_id": "m"},
            "x-owner": "team",
        }
    )

    assert isinstance(agent, AgentDefinition)
    text, remote, inline = agent.tools
    assert text == "search"
    assert isinstance(remote, RemoteTool)
    assert isinstance(inline, InlineTool)
    assert inline.parameters["properties"]["a"] == {"type": "number"}
    assert isinstance(hash(agent), int)
    assert AgentDefinition.model_validate(agent.model_dump()) == agent
    assert agent.model_dump()["x-owner"] == "team"


def test_the_other_kinds_keep_what_they_bring() -> None:
    tool = defined({"type": "tool", "id": "t", "uri": "mcp://x", "risk_level": "safe"})
    skill = defined({"type": "skill", "id": "s", "steps": [{"do": "this"}]})

    assert isinstance(tool, ToolDefinition)
    assert isinstance(skill, SkillDefinition)
    assert tool.model_dump(exclude_none=True)["risk_level"] == "safe"
    assert skill.model_dump()["steps"] == [{"do": "this"}]
    assert isinstance(hash(skill), int)


@pytest.mark.parametrize("kind", ["tool", "skill", "mcp_resource", "tool_pack", "placeholder"])
def test_each_other_kind_is_known_and_may_not_have_an_evaluation(kind: str) -> None:
    assert defined({"type": kind, "id": "x"}).type == kind
    with pytest.raises(ValidationError, match="only agents may have an `evaluation`"):
        defined({"type": kind, "id": "x", "evaluation": {}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "agnet"}, "`type` is unknown"),
        ({"type": None}, "`type` is missing; use one of agent, tool"),
        ({"type": 5}, "`type` is unknown"),
        ({"goal": None}, "valid string"),
        ({"evaluation": {"grading_rubic": []}}, "Extra inputs"),
        ({"evaluation": 5}, "EvaluationProfile"),
        ({"evalution": {}}, "Extra inputs"),
        ({"context_strategy": "none"}, "'full', 'compressed' or 'hybrid'"),
        ({"tools": [{"type": "remote"}]}, "Field required"),
        ({"tools": [5]}, "not a mapping with a `type`"),
        ({"tools": [" "]}, "not a mapping with a `type`"),
        ({"tools": "search"}, "valid tuple"),
    ],
)
def test_a_broken_agent_is_an_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        defined({**AGENT, **change})


def test_an_inline_tool_takes_one_object() -> None:
    with pytest.raises(ValidationError, match="add `type: object`"):
        InlineTool(name="add", description="Adds.", parameters={"type": "string"})
    with pytest.raises(ValidationError, match="match pattern"):
        InlineTool(name="add it", description="Adds.", parameters={"type": "object"})
