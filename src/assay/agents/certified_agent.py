"""The protocol of agents under test, and the sample as they may see it."""

from dataclasses import dataclass
from typing import Any, Protocol

from assay.datasets import ANSWER_KEYS
from assay.errors import AssayError
from assay.types import Sample, Trajectory

# Fields of a row that contain the expected answer, at any depth.
_ANSWER_FIELDS = frozenset({*ANSWER_KEYS, "reward_model", "reward_spec", "trajectory", "score"})


class AgentFault(AssayError):
    """The agent under test returned no answer. It counts as a failed sample."""


@dataclass(frozen=True)
class AgentAnswer:
    """The trajectory of an agent on one sample, and its duration."""

    trajectory: Trajectory
    seconds: float
    """Active time of the agent: excludes queueing and waits between attempts."""


class Agent(Protocol):
    """An agent under test."""

    @property
    def name(self) -> str:
        """The name of the agent in reports, without secrets."""
        ...

    @property
    def sha256(self) -> str | None:
        """The digest of its code, where known."""
        ...

    @property
    def identity(self) -> str:
        """A string that differs between agents that may answer differently."""
        ...

    async def answer(self, sample: Sample, *, seed: int | None) -> AgentAnswer:
        """Answer one sample. Any exception counts as a failure of the agent."""
        ...

    async def close(self) -> None:
        """Release its resources."""
        ...


def strip_expected_answer(sample: Sample) -> Sample:
    """Return a deep copy of the sample without its expected answer."""
    truth = sample.ground_truth
    shown = {
        "ground_truth": None,
        "score": None,
        "input": _drop_answer_fields(sample.input, truth),
        "metadata": _drop_answer_fields(sample.metadata, truth),
    }
    # Deep: an agent that mutates its question must not change the question that is graded.
    return sample.model_copy(update=shown).model_copy(deep=True)


def _drop_answer_fields(value: Any, truth: object) -> Any:
    # Rows nest: the answer may also be in an object beside the question.
    if isinstance(value, dict):
        return {
            key: _drop_answer_fields(each, truth)
            for key, each in value.items()
            if key not in _ANSWER_FIELDS and (truth is None or each != truth)
        }
    if isinstance(value, list):
        return [_drop_answer_fields(each, truth) for each in value]
    return value
