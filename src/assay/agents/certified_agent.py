"""The agent under test: what every kind of it does, and which kind was asked for."""

from dataclasses import dataclass
from typing import Any, Protocol

from assay.datasets import ANSWER_KEYS
from assay.errors import AssayError
from assay.types import Sample, Trajectory

_ANSWER_FIELDS = frozenset({*ANSWER_KEYS, "reward_model", "reward_spec", "trajectory", "score"})
"""Fields of a row that hold the expected answer, at whatever depth."""


class AgentFault(AssayError):
    """The agent under test gave no answer. That is a result: the worst there is."""


@dataclass(frozen=True)
class AgentAnswer:
    """What an agent did with one sample."""

    trajectory: Trajectory
    seconds: float
    """Of the agent's own work: not of waiting for its turn, nor between attempts."""


class Agent(Protocol):
    """An agent under test."""

    @property
    def name(self) -> str:
        """How it is called, without secrets."""
        ...

    @property
    def sha256(self) -> str | None:
        """The digest of its code, where that is known."""
        ...

    @property
    def identity(self) -> str:
        """Tells two agents apart that would answer differently."""
        ...

    async def answer(self, sample: Sample, *, seed: int | None) -> AgentAnswer:
        """Its answer to one sample. Whatever it raises is a failure of the agent."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


def strip_expected_answer(sample: Sample) -> Sample:
    """The sample as an agent may see it: a copy of its own, without the expected answer."""
    truth = sample.ground_truth
    shown = {
        "ground_truth": None,
        "score": None,
        "input": _drop_answer_fields(sample.input, truth),
        "metadata": _drop_answer_fields(sample.metadata, truth),
    }
    # Deep: what an agent does to its question must not become the question that is graded.
    return sample.model_copy(update=shown).model_copy(deep=True)


def _drop_answer_fields(value: Any, truth: object) -> Any:
    """Rows nest: the answer may also stand in an object beside the question."""
    if isinstance(value, dict):
        return {
            key: _drop_answer_fields(each, truth)
            for key, each in value.items()
            if key not in _ANSWER_FIELDS and (truth is None or each != truth)
        }
    if isinstance(value, list):
        return [_drop_answer_fields(each, truth) for each in value]
    return value
