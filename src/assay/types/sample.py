"""The sample: one type from a dataset row to a gate, a certificate and a training batch."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AliasChoices, Field, FiniteFloat, model_validator

from .evaluate_result import EvaluateResult, StepOutput
from .failure import Failure
from .field_types import NullToEmpty, SerializeByValue, Text
from .input_metadata import InputMetadata
from .message import Message
from .serialization import JsonModel, construct_unchecked
from .stable_ids import stable_id
from .trajectory import ExecutionMetadata, Trajectory


class Status(StrEnum):
    """The progress of a sample."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"

    @classmethod
    def _missing_(cls, value: object) -> "Status | None":
        # Other tools write the member names instead of the values.
        return cls.__members__.get(value) if isinstance(value, str) else None


class Sample(JsonModel):
    """One item from input to result: the same type for evaluation, GRPO and SFT.

    As arguments, `messages` is an alias of `prompt`, `evaluation_result` of `score`, and
    `input_metadata` of `metadata`. A sample without an id gets a stable hash of its input.
    """

    id: str = ""
    index: int | None = None
    group_index: int | None = None
    """Samples of one group are answers to the same input."""

    rollout_id: str | None = None
    """Shared by samples that come from one rollout."""

    input: Annotated[dict[str, Any], NullToEmpty] = Field(default_factory=dict)
    """The unchanged dataset row."""

    prompt: Annotated[Text | list[Message], SerializeByValue] = Field(
        default="",
        union_mode="left_to_right",
        validation_alias=AliasChoices("prompt", "messages"),
    )
    ground_truth: Any = None
    trajectory: Trajectory | None = None
    score: EvaluateResult | None = Field(
        default=None, validation_alias=AliasChoices("score", "evaluation_result")
    )
    tokens: Annotated[list[int], NullToEmpty] = Field(default_factory=list)
    loss_mask: Annotated[list[FiniteFloat], NullToEmpty] = Field(default_factory=list)
    rollout_log_probs: list[FiniteFloat] | None = None
    status: Status = Status.PENDING
    failure: Failure | None = None
    """The error, if the sample failed."""

    metadata: Annotated[dict[str, Any], NullToEmpty] = Field(
        default_factory=dict, validation_alias=AliasChoices("metadata", "input_metadata")
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            prompt: str | Sequence[Message | dict[str, Any]] = "",
            ground_truth: Any = None,
            trajectory: Trajectory | None = None,
            score: EvaluateResult | None = None,
            **fields: Any,
        ) -> None: ...

    @model_validator(mode="after")
    def _settle(self) -> Self:
        if self.__pydantic_extra__:
            extra = self.__pydantic_extra__
            # An alias is an extra only when its field was passed as well: which value counts would
            # be ambiguous.
            for second, first in _FIELD_ALIASES.items():
                if second in extra:
                    raise ValueError(f"{second!r} is an alias of {first!r}; pass only one of them")
            if "response" in extra:
                raise ValueError(
                    "'response' is read from the messages; pass a trajectory, or messages that end "
                    "with the assistant's answer"
                )
            reward = extra.pop("reward", None)
            if reward is not None and self.score is None:
                self.score = EvaluateResult(score=reward)
            elif reward is not None:
                self.reward = reward
        if not self.id:
            content = self.input or self.model_dump(
                mode="json", include={"prompt", "ground_truth"}, exclude_defaults=True
            )
            self.id = stable_id(content)
        return self

    def __getitem__(self, name: str) -> Any:
        """Return a field of the dataset row: `sample["question"]`."""
        try:
            return self.input[name]
        except KeyError:
            raise KeyError(
                f"{name!r} is not a field of the row; its fields are {sorted(self.input)}"
            ) from None

    @property
    def messages(self) -> list[Message]:
        """The trajectory's messages, else the prompt as messages."""
        if self.trajectory is not None:
            return self.trajectory.messages
        if isinstance(self.prompt, str):
            fields = {"role": "user", "content": self.prompt}
            return [construct_unchecked(Message, fields)] if self.prompt else []
        return self.prompt

    @messages.setter
    def messages(self, messages: Sequence[Message | dict[str, Any]]) -> None:
        """Replace the trajectory's messages, or without a trajectory the prompt."""
        checked = [
            each if isinstance(each, Message) else Message.model_validate(each) for each in messages
        ]
        if self.trajectory is not None:
            self.trajectory.messages = checked
        else:
            self.prompt = checked

    @property
    def response(self) -> str:
        """The last assistant text of the trajectory, else of the prompt, else ""."""
        for message in reversed(self.messages):
            # A turn that only calls tools is not an answer; an empty text without calls is.
            if message.role == "assistant" and (message.text or not message.tool_calls):
                return message.text
        return ""

    @property
    def reward(self) -> float | None:
        """The score when it is valid; None for an unscored sample."""
        return self.score.reward if self.score is not None else None

    @reward.setter
    def reward(self, value: float | None) -> None:
        if value != self.reward:
            raise ValueError(
                f"reward is derived from the score, {self.reward}; it cannot be set to {value}"
            )

    @property
    def evaluation_result(self) -> EvaluateResult | None:
        return self.score

    @evaluation_result.setter
    def evaluation_result(self, result: EvaluateResult | None) -> None:
        self.score = result

    @property
    def input_metadata(self) -> InputMetadata:
        """The metadata, with its keys as attributes too."""
        metadata = self.metadata
        if not isinstance(metadata, InputMetadata):
            # Replaces the plain dict, so that attributes set on it change the sample.
            metadata = self.__dict__["metadata"] = InputMetadata(metadata)
        return metadata

    @input_metadata.setter
    def input_metadata(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    @property
    def execution_metadata(self) -> ExecutionMetadata:
        """Statistics of the rollout, derived from the trajectory."""
        return ExecutionMetadata.of(self.trajectory, self.rollout_id)

    def last_assistant_message(self) -> Message | None:
        """Return the last assistant message, or None."""
        return next((each for each in reversed(self.messages) if each.role == "assistant"), None)

    def get_assistant_messages(self) -> list[Message]:
        """Return all assistant messages."""
        return [each for each in self.messages if each.role == "assistant"]

    def get_user_messages(self) -> list[Message]:
        """Return all user messages."""
        return [each for each in self.messages if each.role == "user"]

    def get_first_user_message(self) -> Message | None:
        """Return the first user message, or None."""
        return next((each for each in self.messages if each.role == "user"), None)

    def get_system_message(self) -> Message:
        """Return the first system message, or an empty one."""
        found = (each for each in self.messages if each.role == "system")
        return next(found, None) or Message(role="system", content="")

    def get_conversation_length(self) -> int:
        """Return the number of messages."""
        return len(self.messages)

    def get_input_metadata(self, key: str, default: Any = None) -> Any:
        """Return a value of the metadata."""
        return self.metadata.get(key, default)

    def get_steps(self) -> int:
        """Return the number of steps that an environment reported."""
        return len(self._collect_step_outputs())

    def get_total_reward(self) -> float | None:
        """Return the sum of the rewards of all steps; 0.0 without steps.

        None when a reward is unknown, or when the environment took steps without rewards.
        """
        rewards = [step.base_reward for step in self._collect_step_outputs()]
        if not rewards and self.trajectory is not None and self.trajectory.steps:
            return None
        known = [reward for reward in rewards if reward is not None]
        return sum(known, 0.0) if len(known) == len(rewards) else None

    def get_terminated(self) -> bool:
        """Whether an environment ended the episode."""
        return any(step.terminated for step in self._collect_step_outputs())

    def get_termination_reason(self) -> str:
        """Return why the rollout ended, or "unknown"."""
        if self.trajectory is not None and self.trajectory.termination_reason:
            return self.trajectory.termination_reason
        reasons = [
            step["termination_reason"]
            for step in self._read_message_steps()
            if step.get("termination_reason")
        ]
        return str(reasons[-1]) if reasons else "unknown"

    def _collect_step_outputs(self) -> Sequence[StepOutput]:
        # The trajectory's own record wins over the score's copy and over eval-protocol's messages.
        own = self.trajectory.evaluation_result if self.trajectory is not None else None
        for result in (own, self.score):
            if result is not None and result.step_outputs:
                return result.step_outputs
        return [
            StepOutput(
                step_index=index,
                base_reward=reward if isinstance(reward, int | float) else None,
                terminated=bool(step.get("terminated")),
            )
            for index, step in enumerate(self._read_message_steps())
            for reward in (step.get("reward", 0.0),)
        ]

    def _read_message_steps(self) -> list[dict[str, Any]]:
        # Rows of eval-protocol record the steps on their messages.
        found = ((each.model_extra or {}).get("control_plane_step") for each in self.messages)
        return [step for step in found if step and isinstance(step, dict)]

    def is_trajectory_evaluation(self) -> bool:
        """Whether the result has per-step rewards, rather than one number for one answer."""
        own = self.trajectory.evaluation_result if self.trajectory is not None else None
        return any(result is not None and result.step_outputs for result in (self.score, own))


_FIELD_ALIASES = {"messages": "prompt", "evaluation_result": "score", "input_metadata": "metadata"}


EvaluationRow = Sample
"""The name of `Sample` in eval-protocol."""
