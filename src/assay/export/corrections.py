"""Answers that a person corrected: training data that no model wrote."""

from dataclasses import dataclass
from typing import Any

from assay.types import EvaluateResult, Message, Sample, Status, Trajectory

NO_ANSWER = "corrected, but it has no recorded answer to reject"
CORRECTED = "label"
"""The termination reason of a corrected trajectory."""

_METADATA_KEY = "label"


@dataclass(frozen=True)
class Correction:
    """A recorded sample with the answer that a person gave instead."""

    recorded: Sample
    answer: str
    score: float = 1.0
    """The score of the corrected answer."""

    author: str = ""

    def build_corrected(self) -> Sample:
        """Build the sample that ends with the corrected answer.

        Tokens and model calls are left out: the model did not sample this answer.
        """
        sample = self.recorded
        place = find_answer(sample.messages)
        before = sample.messages if place is None else sample.messages[:place]
        trajectory = Trajectory(
            messages=[*before, Message(role="assistant", content=self.answer)],
            termination_reason=CORRECTED,
        )
        fields: dict[str, Any] = {
            "trajectory": trajectory,
            "score": EvaluateResult(score=self.score, reason="corrected by a person"),
            "tokens": [],
            "loss_mask": [],
            "rollout_log_probs": None,
            "status": Status.COMPLETED,
            "failure": None,
            "metadata": {**sample.metadata, _METADATA_KEY: {"author": self.author}},
        }
        return sample.model_copy(update=fields)

    def build_rejected(self) -> Sample | None:
        """Build the sample that ends with the recorded answer; None without one."""
        sample = self.recorded
        place = find_answer(sample.messages)
        if place is None or sample.trajectory is None:
            return None
        # Both answers of a pair must be the last message.
        trajectory = sample.trajectory.model_copy(update={"messages": sample.messages[: place + 1]})
        return sample.model_copy(update={"trajectory": trajectory})


def find_answer(messages: list[Message]) -> int | None:
    """Return the position of the last answer of the assistant; None without one."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        # A turn that only calls tools is not an answer.
        if message.role == "assistant" and (message.text or not message.tool_calls):
            return place
    return None
