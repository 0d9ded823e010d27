"""The definitions of a manifest: agents, and the tools, skills and resources they use.

`type` alone selects the kind of a definition. A broken agent is an error, never another kind.
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
            raise ValueError("the schema does not describe an object; add `type: object`")
        return parameters


_Validator = Callable[[Any, ValidatorFunctionWrapHandler], Any]


def _build_kind_validator(*kinds: type[FrozenModel], text: bool = False) -> _Validator:
    # Selects the model by `type` before validation: a plain union would try every member and
    # report the errors of all of them, or accept a broken agent as a placeholder.
    by_type = {kind.model_fields["type"].default: kind for kind in kinds}

    def read(value: Any, _try_each: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, kinds) or (text and isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("not_a_mapping", "the value is not a mapping with a `type`")
        named = value.get("type")
        if named is None:
            known = {"known": ", ".join(by_type)}
            raise PydanticCustomError("no_type", "`type` is missing; use one of {known}", known)
        if not isinstance(named, str) or named not in by_type:
            found = {"named": named, "known": list(by_type)}
            raise PydanticCustomError("unknown_type", "`type` is unknown", found)
        return by_type[named].model_validate(dict(value))

    return read


def _serialize_with_type(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    # `type` equals its default and would be omitted, but reading needs it.
    written = write(value)
    return written if isinstance(value, str) else {"type": value.type, **written}


Tool = Annotated[
    str | RemoteTool | InlineTool,
    WrapValidator(_build_kind_validator(RemoteTool, InlineTool, text=True)),
    WrapSerializer(_serialize_with_type),
]
"""A tool's id, where it runs, or its description."""


class AgentDefinition(ExtensibleModel):
    """An agent: its role, its tools, and its certification criteria."""

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
    """The certification criteria; None when there are none."""

    resources: FrozenDict[FrozenJson] | None = None


class _OpenDefinition(FrozenOpenModel):
    """A definition other than an agent; unknown fields are kept unchanged."""

    id: Name
    name: NonBlankText | None = None
    description: NonBlankText | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_not_an_agent(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "evaluation" in data:
            raise PydanticCustomError("not_an_agent", "only agents may have an `evaluation`")
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
    """A reserved name for a definition that does not exist yet."""

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
