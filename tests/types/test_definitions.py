"""Definitions: `type` decides, and a broken agent is an error, never something else."""

from typing import Any

import pytest
from pydantic import ValidationError

from assay.types.manifest import (
    AgentDefinition,
    EvaluationProfile,
    InlineTool,
    Manifest,
    RemoteTool,
    SkillDefinition,
    SuccessCriterion,
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


FACTUAL: dict[str, Any] = {"name": "factuality", "description": "No errors.", "threshold": 0.99}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threshold": float("nan")}, "finite"),
        ({"threshold": float("inf")}, "finite"),
        ({"threshold": "0.9"}, "valid number"),
        ({"threshold": True}, "valid number"),
        ({"threshold": None}, "valid number"),
        ({"name": ""}, "the text is empty"),
        ({"name": "a\nb"}, "control characters"),
        ({"name": " a"}, "surrounding spaces"),
        ({"name": "n" * 201}, "at most 200"),
        ({"description": "  "}, "the text is empty"),
        ({"strict": "no"}, "valid boolean"),
        ({"strict": 1}, "valid boolean"),
        ({"direction": "up"}, "'max' or 'min'"),
        ({"metric": ""}, "the text is empty"),
        ({"range": [1, 1]}, r"\[1, 1\] is not ascending"),
        ({"range": [0, 1, 2]}, "at most 2"),
        ({"range": ["0", 1]}, "valid number"),
        ({"treshold": 1}, "Extra inputs"),
    ],
)
def test_a_criterion_refuses(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SuccessCriterion.model_validate({**FACTUAL, **change})


@pytest.mark.parametrize("threshold", [-1.5, 0, 1.5, 100.0])
def test_a_threshold_may_be_any_finite_number(threshold: float) -> None:
    assert (
        SuccessCriterion.model_validate({**FACTUAL, "threshold": threshold}).threshold == threshold
    )


def test_a_criterion_blocks_unless_it_says_otherwise() -> None:
    criterion = SuccessCriterion(**FACTUAL)

    assert criterion.strict is True
    assert (criterion.direction, criterion.metric, criterion.range) == (None, None, None)
    assert SuccessCriterion(**FACTUAL, range=(0, 5)).range == (0.0, 5.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expected_latency_ms": -5}, "greater than 0"),
        ({"expected_latency_ms": 0}, "greater than 0"),
        ({"expected_latency_ms": True}, "valid integer"),
        ({"expected_latency_ms": "2000"}, "valid integer"),
        ({"expected_latency_ms": 1500.5}, "valid integer"),
        ({"golden_dataset_uri": ""}, "the text is empty"),
        ({"golden_dataset_uri": "a\x1b[31m"}, "control characters"),
        ({"evaluator_model": ""}, "the text is empty"),
        ({"grading_rubric": None}, "valid tuple"),
        ({"golden_dataset_sha256": "ab12"}, "match pattern"),
        ({"golden_dataset_sha256": "AB" * 32}, "match pattern"),
        ({"latency_statistic": "p96"}, "'p50', 'p90'"),
        ({"gate": "maybe"}, "'point' or 'proven'"),
        ({"confidence": 95}, "less than 1"),
        ({"confidence": 0.2}, "greater than or equal to 0.5"),
        ({"repeats": 0}, "greater than 0"),
        ({"repeats": True}, "valid integer"),
    ],
)
def test_a_profile_refuses(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EvaluationProfile.model_validate(change)


def test_a_profile_is_empty_by_default_and_says_how_it_measures() -> None:
    profile = EvaluationProfile()

    assert profile.grading_rubric == ()
    assert (profile.expected_latency_ms, profile.golden_dataset_uri) == (None, None)
    assert (profile.latency_statistic, profile.gate) == ("p95", "point")
    assert (profile.confidence, profile.repeats) == (0.95, 1)


def test_a_rubric_is_given_as_a_list_and_cannot_be_added_to() -> None:
    profile = EvaluationProfile(grading_rubric=[SuccessCriterion(**FACTUAL)])

    assert profile.grading_rubric[0].name == "factuality"
    assert not hasattr(profile.grading_rubric, "append")
    assert hash(profile) == hash(EvaluationProfile(grading_rubric=(SuccessCriterion(**FACTUAL),)))
    with pytest.raises(ValidationError):
        profile.grading_rubric[0].model_copy(update={"threshold": "garbage"})
    with pytest.raises(ValidationError, match="frozen"):
        profile.gate = "proven"  # type: ignore[misc]  # what is tested
