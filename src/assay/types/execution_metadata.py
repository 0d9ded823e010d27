"""Statistics of a rollout under eval-protocol's names."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .trajectory import Trajectory


@dataclass(frozen=True)
class CompletionUsage:
    """Tokens of all model calls of a rollout."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class ExecutionMetadata:
    """A view of the trajectory. Unknown values are None."""

    rollout_id: str | None = None
    finish_reason: str | None = None
    """Of the last model call."""

    tool_call_count: int | None = None
    """Tools that the last answer of the model calls."""

    usage: CompletionUsage | None = None
    """None unless every call of the rollout reports its tokens."""

    rollout_duration_seconds: float | None = None

    @classmethod
    def of(cls, trajectory: "Trajectory | None", rollout_id: str | None) -> Self:
        """Return the metadata of a rollout; without one, all fields but the id are None."""
        if trajectory is None or not trajectory.calls:
            return cls(rollout_id)
        answers = [each for each in trajectory.messages if each.role == "assistant"]
        used = [call.usage for call in trajectory.calls if call.usage is not None]
        read = [each.input_tokens for each in used if each.input_tokens is not None]
        written = [each.output_tokens for each in used if each.output_tokens is not None]
        # A partial sum would look like the whole.
        known = len(read) == len(written) == len(trajectory.calls)
        usage = CompletionUsage(sum(read), sum(written)) if known else None
        return cls(
            rollout_id=rollout_id,
            finish_reason=trajectory.calls[-1].finish_reason,
            tool_call_count=len(answers[-1].tool_calls) if answers else None,
            usage=usage,
            rollout_duration_seconds=trajectory.duration,
        )
