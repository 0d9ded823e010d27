"""The description of a tool that a model receives."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ToolSpec(BaseModel):
    """Name, description and JSON Schema of a tool the model may call."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
