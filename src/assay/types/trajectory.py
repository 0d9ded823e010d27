"""A rollout's record: the conversation, its model calls, and how it ended."""

from typing import Annotated, Any

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


class Trajectory(JsonModel):
    """A complete rollout. `conversation_history` is an alias of `messages`."""

    messages: list[Message] = Field(
        default_factory=list, validation_alias=AliasChoices("messages", "conversation_history")
    )
    calls: Annotated[list[ModelCall], NullToEmpty] = Field(default_factory=list)
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
