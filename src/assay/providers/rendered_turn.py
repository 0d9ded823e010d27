"""A parsed turn of a model: content, reasoning and tool calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.types import ToolCall


@dataclass(frozen=True)
class ParsedTurn:
    """The parts of a turn."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None


def make_call(name: str, arguments: dict[str, Any] | str, id: str | None = None) -> ToolCall:
    """Make a tool call. Arguments as text are kept verbatim, even if malformed."""
    return ToolCall.model_validate({"id": id, "name": name, "arguments": arguments})


def join_words(pieces: Iterable[str]) -> str:
    """Join the text around calls, without blank pieces and line breaks next to calls."""
    return "\n".join(piece.strip("\n") for piece in pieces if piece.strip())
