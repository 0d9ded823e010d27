"""Conversations without a rollout, converted to samples for fine-tuning."""

from typing import Any, Literal

from pydantic import ValidationError

from assay.errors import TokenError
from assay.types import Message, Sample, Trajectory

DemonstratedTurns = Literal["all", "last"]


def to_demonstration(sample: Sample, *, turns: DemonstratedTurns = "all") -> Sample:
    """Return the sample with its conversation as a trajectory, unless it has one already.

    A row with `completion` demonstrates that after its prompt. Other conversations demonstrate
    the assistant's turns: all of them, or the last one. Raises `TokenError` without any.
    """
    if sample.trajectory is not None:
        return sample
    completion = sample.input.get("completion")
    if completion is not None:
        messages = [*sample.messages, *_read_demonstrated_messages(completion, sample)]
        return _build_demonstration(sample, sample.messages, messages)
    messages = sample.messages
    answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
    if not answers or answers[-1] != len(messages) - 1:
        raise TokenError(
            "the conversation does not end with an answer, so it has nothing to learn from",
            where=f"sample {sample.id}",
            hint="provide messages that end with the assistant's, a `completion` or a trajectory",
        )
    first = answers[0] if turns == "all" else answers[-1]
    return _build_demonstration(sample, messages[:first], messages)


def _build_demonstration(sample: Sample, prompt: list[Message], messages: list[Message]) -> Sample:
    trajectory = Trajectory(messages=list(messages))
    return sample.model_copy(update={"prompt": prompt, "trajectory": trajectory})


def _read_demonstrated_messages(completion: Any, sample: Sample) -> list[Message]:
    if isinstance(completion, str):
        return [Message(role="assistant", content=completion)]
    try:
        return [Message.model_validate(each) for each in completion]
    except (TypeError, ValidationError) as error:
        raise TokenError(
            f"`completion` is neither text nor a list of messages: {str(error).splitlines()[0]}",
            where=f"sample {sample.id}",
        ) from None
