"""What the turn loop asks of an environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from assay.models import Message, ToolSpec


@dataclass(frozen=True, slots=True)
class Step:
    """What one exchange with an environment came to."""

    replies: tuple[Message, ...] = ()
    """What the environment answers: results of tools, or words of a user."""

    reward: float | None = None
    """None when the environment gives no rewards."""

    terminated: bool = False
    truncated: bool = False
    ended_by_agent: bool = False
    """Whether it is the agent that ended the episode, by its answer."""

    info: Mapping[str, Any] = field(default_factory=dict)
    """The control plane's own data: never shown to the agent."""

    reason: str | None = None
    observation: Any = None


@runtime_checkable
class Environment(Protocol):
    """One episode. Single-use: there is no reset; make another.

    `open` applies the seed (0 included) before anything is observed. The agent's mistakes are
    answered in words; raising is for faults of the environment itself.
    """

    @property
    def tools(self) -> Sequence[ToolSpec]: ...

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        """Begin the episode; what the agent is shown beside its prompt."""
        ...

    async def step(self, action: Message) -> Step:
        """Answer the agent's message."""
        ...

    async def close(self) -> None: ...
