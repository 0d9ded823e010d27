"""Outputs of agents recorded from real libraries, and messages as plain values."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from assay.types import Message

# Recorded from objects of the real libraries: openai-agents 0.24.0, anthropic 2.8.0, google-genai
# 3.1.0, langchain-core 1.7.2, pydantic-ai-slim 2.66.0, smolagents 1.26.0.
RECORDED = Path(__file__).parents[1] / "fixtures" / "agent_outputs"


class Sky(BaseModel):
    sky: str


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))


def wire(messages: list[Message]) -> list[dict[str, Any]]:
    """Roles, texts, calls and results: what every format can represent."""
    return [
        {
            key: value
            for key, value in (
                ("role", message.role),
                ("text", message.text),
                ("reasoning", message.reasoning),
                ("calls", [(c.id, c.name, c.arguments_text) for c in message.tool_calls]),
                ("answers", message.tool_call_id),
                ("failed", (message.details or {}).get("failed")),
            )
            if value not in (None, "", [])
        }
        for message in messages
    ]
