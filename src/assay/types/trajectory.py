"""A rollout's record: the conversation, its model calls, and how it ended."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, ConfigDict, Field, FiniteFloat

from .evaluate_result import EvaluateResult
from .field_types import NullToEmpty, Text
from .message import Message
from .serialization import JsonModel, NestedModel


class Usage(NestedModel):
    """Tokens and cost of a model call. Unknown values are None, never 0."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: FiniteFloat | None = None


CallPurpose = Literal["turn", "title", "summary", "count_tokens", "retry", "probe"]
"""Why an agent called its model. Only turns are its conversation."""

ForkReason = Literal[
    "root",
    "subagent",
    "compaction",
    "edited_history",
    "resampled",
    "reasoning_stripped",
    "retokenized",
]
"""Why calls do not continue the tokens of the calls before them."""


class ModelCall(NestedModel):
    """One request to a model, with the tokens that the engine read and sampled."""

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[FiniteFloat, ...] | None = None
    """One for each completion id, under the sampling distribution."""

    sampling: Annotated[dict[str, Any], NullToEmpty] = Field(default_factory=dict)
    model: str | None = None
    weight_version: str | None = None
    """Which weights answered, for engines whose weights change during training."""

    message_index: int | None = None
    """The position of the answer in the trajectory's messages."""

    finish_reason: str | None = None
    usage: Usage | None = None
    latency_s: FiniteFloat | None = None
    retry_wait_s: FiniteFloat | None = None
    """Seconds between attempts, which `latency_s` omits. None for a single attempt."""

    attempts: int = 1
    error: Text | None = None
    purpose: CallPurpose = "turn"
    """Calls for another purpose are paid for, but neither shown, scored nor trained on."""

    branch: int = 0
    """The position of the call's branch in the trajectory's `branches`."""

    parent: int | None = None
    """The position of the call that this one continues or repeats. None: it continues none."""

    wire: dict[str, Any] | None = None
    """The exchange as the gateway recorded it: the request, the answer and their API."""


class Branch(NestedModel):
    """Calls of which each one continues the one before: an agent, or a part of its work."""

    model_config = ConfigDict(frozen=True, extra="allow")

    reason: ForkReason = "root"
    parent: int | None = None
    """The position of the branch that this one forked from."""

    parent_call: int | None = None
    """The position of the last call before the fork."""

    name: Text | None = None
    """The id that the agent itself gives the conversation. None: it declares none."""

    decided_by: Literal["declared", "tokens", "messages"] | None = None
    """What the place of the branch was derived from: ids that the agent declares, or the longest
    common prefix. None: it has no place."""

    ambiguous: bool = False
    """Whether several branches could be continued equally well."""

    messages: list[Message] = Field(default_factory=list)
    """The conversation of this branch; empty on the first one, whose messages are those of the
    trajectory."""


class Trajectory(JsonModel):
    """A complete rollout. `conversation_history` is an alias of `messages`."""

    messages: list[Message] = Field(
        default_factory=list, validation_alias=AliasChoices("messages", "conversation_history")
    )
    calls: Annotated[list[ModelCall], NullToEmpty] = Field(default_factory=list)
    branches: Annotated[list[Branch], NullToEmpty] = Field(default_factory=list)
    """The branches of `calls`, the main one first. Empty: all calls are one branch."""

    steps: int | None = None
    """Exchanges in which the environment took a step."""

    duration: FiniteFloat | None = None
    """Seconds."""

    cost_usd: FiniteFloat | None = None
    """Of the whole rollout, where calls do not have a cost of their own in `usage`."""

    terminated: bool = False
    """Whether the environment ended the episode; see also `termination_reason`."""

    truncated: bool = False
    termination_reason: Text | None = None
    evaluation_result: EvaluateResult | None = None
    """The environment's own result for this trajectory."""

    session: Any = None
    """Where the rollout took place: the environment, its seed, and a server's address and session
    id. None without an environment."""

    observations: Annotated[list[Any], NullToEmpty] = Field(default_factory=list)
    actions: Annotated[list[Any], NullToEmpty] = Field(default_factory=list)
    """The tool calls that the environment answered, one text each: `move({"to":"b"})`. Of an
    environment without tools: the text of each message that it took a step on."""

    @property
    def conversation_history(self) -> list[Message]:
        return self.messages

    def list_subagents(self) -> "list[tuple[str, Trajectory]]":
        """Return the subagents as trajectories of their own, each with its name."""
        return [
            (
                branch.name or f"subagent-{place}",
                Trajectory(
                    messages=branch.messages,
                    calls=[call for call in self.calls if call.branch == place],
                    termination_reason="agent",
                ),
            )
            for place, branch in enumerate(self.branches)
            if branch.reason == "subagent"
        ]


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
    """A view of the trajectory under eval-protocol's names. Unknown values are None."""

    rollout_id: str | None = None
    finish_reason: str | None = None
    """Of the last model call."""

    tool_call_count: int | None = None
    """Tools that the last answer of the model calls."""

    usage: CompletionUsage | None = None
    """None unless every call of the rollout reports its tokens."""

    rollout_duration_seconds: float | None = None

    @classmethod
    def of(cls, trajectory: Trajectory | None, rollout_id: str | None) -> Self:
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
