"""What the client needs from a provider: write a request, make one attempt, read the answer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from assay.formats import Dropped
from assay.types import Message, ToolSpec

from .reply import Reply


class Attempt(NamedTuple):
    """What is known of the attempt that brought an answer."""

    latency_s: float
    number: int
    seed: int | None
    place: int
    """Where the answer stands: after so many messages."""

    lost: Mapping[str, int] | None
    """What the provider's format has no place for, and how often it came up."""


class ProviderAdapter(Protocol):
    """One provider's way of being asked."""

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[Any, Mapping[str, int] | None]:
        """The request, and what of the messages it has no place for."""

    async def send(self, request: Any) -> Any:
        """Make one attempt. Raises `Fault`."""

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """The reply that an answer holds. Raises `Fault` when it holds none."""

    async def close(self) -> None:
        """Let go of what is held."""


@runtime_checkable
class InProcessAdapter(Protocol):
    """A speaker that knows what it can bear: there is no server to find it out from."""

    at_once: int
    """How many requests it answers at once."""


async def check_tools(asked: object, tools: Sequence[ToolSpec]) -> None:
    """Raise `ConfigError` if a client or speaker knows that its model cannot be offered tools.

    Those with a method `check_tools` know. Any other is trusted with them.
    """
    if getattr(type(asked), "check_tools", None) is not None:
        await asked.check_tools(tools)  # type: ignore[attr-defined]  # asked for in the line above


def count_dropped_fields(lost: Iterable[Dropped]) -> dict[str, int] | None:
    """Losses by their kind. One by one they would fill the record of a long conversation."""
    return dict(Counter(loss.what for loss in lost)) or None
