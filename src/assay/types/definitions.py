"""What a manifest defines: agents, and the tools, skills and resources around them.

`type` alone decides what a definition is. A broken agent is an error, never another kind.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .evaluation_profile import EvaluationProfile, Name, NonBlankText
from .frozen_models import ExtensibleModel, FrozenDict, FrozenJson, FrozenModel, FrozenOpenModel

ManifestUri = Annotated[Name, Field(max_length=2000)]


class RemoteTool(FrozenModel):
    """A tool that runs somewhere else."""

    type: Literal["remote"] = "remote"
    uri: ManifestUri
    hash: Name | None = None


class InlineTool(FrozenModel):
    """A tool that is described in the manifest itself."""

    type: Literal["inline"] = "inline"
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: NonBlankText
    parameters: FrozenDict[FrozenJson]
    """JSON Schema of the arguments, which are one object."""

    code_hash: Name | None = None

    @field_validator("parameters")
    @classmethod
    def _takes_an_object(cls, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        if parameters.get("type") != "object":
            raise ValueError("is not the schema of an object: it needs `type: object`")
        return parameters


_Validator = Callable[[Any, ValidatorFunctionWrapHandler], Any]


def _build_kind_validator(*kinds: type[FrozenModel], text: bool = False) -> _Validator:
    """A validator that reads a mapping as the kind its `type` names, and as nothing else."""
    by_type = {kind.model_fields["type"].default: kind for kind in kinds}

    def read(value: Any, _try_each: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, kinds) or (text and isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("not_a_mapping", "is not a mapping with a `type`")
        named = value.get("type")
        if named is None:
            known = {"known": ", ".join(by_type)}
            raise PydanticCustomError("no_type", "has no `type`: one of {known}", known)
        if not isinstance(named, str) or named not in by_type:
            found = {"named": named, "known": list(by_type)}
            raise PydanticCustomError("unknown_type", "has an unknown `type`", found)
        return by_type[named].model_validate(dict(value))

    return read


def _serialize_with_type(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    """Written with the `type`, which is needed to read it back, also where it is the default."""
    written = write(value)
    return written if isinstance(value, str) else {"type": value.type, **written}


Tool = Annotated[
    str | RemoteTool | InlineTool,
    WrapValidator(_build_kind_validator(RemoteTool, InlineTool, text=True)),
    WrapSerializer(_serialize_with_type),
]
"""A tool's id, where it runs, or its description."""


class AgentDefinition(ExtensibleModel):
    """An agent: who it is, what it may use, and how it is certified."""

    type: Literal["agent"] = "agent"
    id: Name
    name: NonBlankText
    role: NonBlankText
    goal: NonBlankText
    description: NonBlankText | None = None
    backstory: NonBlankText | None = None
    model: Name | None = None
    tools: tuple[Tool, ...] = ()
    knowledge: tuple[NonBlankText, ...] = ()
    skills: tuple[NonBlankText, ...] = ()
    context_strategy: Literal["full", "compressed", "hybrid"] | None = None
    interface: FrozenDict[FrozenJson] | None = None
    capabilities: FrozenDict[FrozenJson] | None = None
    runtime: FrozenDict[FrozenJson] | None = None
    evaluation: EvaluationProfile | None = None
    """Its definition of done; None when it has none."""

    resources: FrozenDict[FrozenJson] | None = None


class _OpenDefinition(FrozenOpenModel):
    """A definition that is no agent: named here, and its further fields kept as they came."""

    id: Name
    name: NonBlankText | None = None
    description: NonBlankText | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_not_an_agent(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "evaluation" in data:
            raise PydanticCustomError("not_an_agent", "has an `evaluation`, which only agents have")
        return data


class ToolDefinition(_OpenDefinition):
    """A tool that agents share."""

    type: Literal["tool"] = "tool"
    uri: ManifestUri | None = None


class SkillDefinition(_OpenDefinition):
    """A skill that agents share."""

    type: Literal["skill"] = "skill"


class McpResourceDefinition(_OpenDefinition):
    """A resource of an MCP server."""

    type: Literal["mcp_resource"] = "mcp_resource"


class ToolPackDefinition(_OpenDefinition):
    """A bundle of tools."""

    type: Literal["tool_pack"] = "tool_pack"


class PlaceholderDefinition(_OpenDefinition):
    """A name kept free for what is not written yet."""

    type: Literal["placeholder"] = "placeholder"


_DEFINITION_TYPES = (
    AgentDefinition,
    ToolDefinition,
    SkillDefinition,
    McpResourceDefinition,
    ToolPackDefinition,
    PlaceholderDefinition,
)
Definition = Annotated[
    AgentDefinition
    | ToolDefinition
    | SkillDefinition
    | McpResourceDefinition
    | ToolPackDefinition
    | PlaceholderDefinition,
    WrapValidator(_build_kind_validator(*_DEFINITION_TYPES)),
    WrapSerializer(_serialize_with_type),
]
