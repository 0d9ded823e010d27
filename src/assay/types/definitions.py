"""The definitions of a manifest: agents with their certification criteria, and their tools.

`type` alone selects the kind of a definition. A broken agent is an error, never another kind.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    Strict,
    StrictBool,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .frozen_models import ExtensibleModel, FrozenDict, FrozenJson, FrozenModel, FrozenOpenModel

Statistic = Literal["p50", "p90", "p95", "p99", "max", "mean"]
"""Which statistic of all measured times is compared with the limit."""


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty; omit the field instead")
    return text


def _check_printable(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} contains surrounding spaces or control characters")
    return text


NonBlankText = Annotated[str, AfterValidator(_check_not_blank)]
"""Text that is not blank."""

Name = Annotated[NonBlankText, Field(max_length=200), AfterValidator(_check_printable)]
"""A name, an id or an address: one printable line."""

StrictFiniteFloat = Annotated[FiniteFloat, Strict()]
"""A finite number that was written as one: neither text nor a bool."""

StrictPositiveInt = Annotated[int, Strict(), Field(gt=0)]


class SuccessCriterion(FrozenModel):
    """One criterion of the agent's manifest: a metric and its threshold."""

    name: Name
    """Also the name of the metric, unless `metric` is set."""

    description: NonBlankText
    threshold: StrictFiniteFloat
    strict: StrictBool = True
    """A missed strict criterion blocks certification; any other only warns."""

    direction: Literal["max", "min"] | None = None
    """Whether high (`max`) or low (`min`) values are good; None leaves it to the metric."""

    metric: Name | None = None
    """A registered metric, or `module:function`."""

    range: tuple[StrictFiniteFloat, StrictFiniteFloat] | None = None
    """Lowest and highest value that the metric can have."""

    @model_validator(mode="after")
    def _range_has_width(self) -> Self:
        if self.range is not None and self.range[0] >= self.range[1]:
            low, high = self.range
            raise ValueError(f"the range [{low:g}, {high:g}] is not ascending")
        return self


class EvaluationProfile(FrozenModel):
    """How an agent is certified: its golden dataset, its judge, its limits and its rubric."""

    expected_latency_ms: StrictPositiveInt | None = None
    """The maximum response time, compared with `latency_statistic`."""

    golden_dataset_uri: Annotated[Name, Field(max_length=2000)] | None = None
    """A path inside the manifest's folder, or an address: see `fetch_golden`."""

    evaluator_model: Name | None = None
    """The model that judges the criteria which no metric measures."""

    grading_rubric: tuple[SuccessCriterion, ...] = ()
    golden_dataset_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Pins the dataset: other content at the same address is refused."""

    latency_statistic: Statistic = "p95"
    gate: Literal["point", "proven"] = "point"
    """Whether the measured value decides, or its bound at `confidence`."""

    confidence: Annotated[StrictFiniteFloat, Field(ge=0.5, lt=1)] = 0.95
    repeats: StrictPositiveInt = 1
    """How many times each sample is run."""


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
