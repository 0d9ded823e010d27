"""What a model wrote in one turn: words, reasoning and tool calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.types import ToolCall


@dataclass(frozen=True)
class ParsedTurn:
    """What a text turned out to hold."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None


def make_call(name: str, arguments: dict[str, Any] | str, id: str | None = None) -> ToolCall:
    """A call. Arguments as text are kept as the model wrote them, malformed ones too."""
    return ToolCall.model_validate({"id": id, "name": name, "arguments": arguments})


def join_words(pieces: Iterable[str]) -> str:
    """The words around calls: blank pieces and the line breaks next to a call are layout."""
    return "\n".join(piece.strip("\n") for piece in pieces if piece.strip())
