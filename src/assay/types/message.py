"""One turn of a conversation: the format that every provider's format converts to."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import from_json, to_json

from .field_types import NullToEmpty, SerializeByValue, Text
from .serialization import JsonModel

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
"""The roles that providers know. A message may have another one, as in some datasets."""


class TextBlock(BaseModel):
    """A piece of text inside a message of several blocks."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["text"]
    text: Text

    def __init__(self, **fields: Any) -> None:
        # Not a default of the field: defaults are omitted when a message is written, and a block
        # without `type` is invalid everywhere.
        super().__init__(**{"type": "text", **fields})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # read by pydantic


class DataBlock(BaseModel):
    """Any other block: an image, audio, a file, or an unknown type. Kept unchanged."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str


ContentBlock = TextBlock | DataBlock


def _classify_block(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return "text" if kind == "text" else "data"


ContentBlocks = tuple[
    Annotated[
        Annotated[TextBlock, Tag("text")] | Annotated[DataBlock, Tag("data")],
        Discriminator(_classify_block),
    ],
    ...,
]


class CalledFunction(NamedTuple):
    """Name and arguments of a tool call in OpenAI's nesting."""

    name: str
    arguments: str
    """A JSON string."""


class ToolCall(BaseModel):
    """A tool call of the model.

    Reads three formats: its own, OpenAI's (`function.arguments` is a JSON string) and Hugging
    Face's (`function.arguments` is an object).
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: Text | None = None
    name: Text
    arguments: Annotated[dict[str, Any], NullToEmpty] = Field(default_factory=dict)
    """Empty when the model wrote something that is not a JSON object: see `malformed`."""

    raw_arguments: Text | None = None
    """The model's own text of the arguments, if serializing `arguments` would differ."""

    @property
    def malformed(self) -> bool:
        """Whether the model's arguments were not a JSON object."""
        return self.raw_arguments is not None and parse_arguments(self.raw_arguments) is None

    @property
    def arguments_text(self) -> str:
        """The arguments as a JSON string: the model's own text where there is one."""
        if self.raw_arguments is not None:
            return self.raw_arguments
        return to_json(self.arguments).decode()

    @property
    def function(self) -> CalledFunction:
        """The call in OpenAI's nesting: `call.function.name`, `call.function.arguments`."""
        return CalledFunction(self.name, self.arguments_text)

    @model_validator(mode="before")
    @classmethod
    def _read_foreign(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        function = data.get("function")
        if isinstance(function, Mapping):
            nested = ("name", "arguments")
            # Other keys of OpenAI's nested object are kept under `function`.
            rest = {key: value for key, value in function.items() if key not in nested}
            data = {key: value for key, value in data.items() if key != "function"}
            if data.get("type") == "function":
                del data["type"]
            if rest:
                data["function"] = rest
            data |= {key: function[key] for key in nested if function.get(key) is not None}
        if isinstance(data.get("arguments"), str):
            data = {**data, **read_arguments(data["arguments"])}
        return data


def read_arguments(text: str) -> dict[str, Any]:
    """Return the fields of a `ToolCall` for this JSON string."""
    arguments = parse_arguments(text)
    if arguments is None:
        return {"arguments": {}, "raw_arguments": text}
    # The original text is kept only if serializing would not restore it: tokens depend on it.
    if to_json(arguments) == text.encode():
        return {"arguments": arguments}
    return {"arguments": arguments, "raw_arguments": text}


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or None when it is something else."""
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        # Some servers send blank text for a tool without parameters.
        return None if text.strip() else {}
    if not isinstance(value, dict):
        return None
    # A number such as 1e999 is read as an infinity, which cannot be written back. Searching the
    # bytes first spares the second parse in all but odd cases.
    written = to_json(value, inf_nan_mode="constants")
    constants: list[str] = []
    if b"Infinity" in written:
        json.loads(written, parse_constant=constants.append)
    return None if constants else value


class ToolSpec(BaseModel):
    """Name, description and JSON Schema of a tool the model may call."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class Message(JsonModel):
    """One message. Unknown fields of a foreign format are kept as extras."""

    model_config = ConfigDict(frozen=True)

    role: str = Field(min_length=1)
    content: Annotated[Text | ContentBlocks | None, SerializeByValue] = Field(
        default=None, union_mode="left_to_right"
    )
    tool_calls: Annotated[tuple[ToolCall, ...], NullToEmpty] = ()
    tool_call_id: Text | None = None
    name: Text | None = None
    reasoning: Text | None = Field(
        default=None, validation_alias=AliasChoices("reasoning", "reasoning_content")
    )
    provider: str | None = None
    api: str | None = None
    model: str | None = None
    details: dict[str, Any] | None = None
    timestamp: str | None = None
    metadata: Annotated[dict[Text, Text], NullToEmpty] = Field(default_factory=dict)
    """OpenAI's: at most 16 pairs of strings. May contain the result of this turn."""

    @property
    def reasoning_content(self) -> str | None:
        return self.reasoning

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            return ""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))
