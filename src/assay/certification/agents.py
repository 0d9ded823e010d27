"""The agent under test: what every kind of it does, and which kind was asked for."""

from dataclasses import dataclass
from typing import Protocol

from assay.errors import AssayError
from assay.models import Sample, Trajectory
from assay.sources.layouts import ANSWER_KEYS

_HIDDEN = frozenset({*ANSWER_KEYS, "reward_model", "reward_spec", "trajectory", "score"})
"""Fields of a row that hold the expected answer."""


class AgentFault(AssayError):
    """The agent under test gave no answer. That is a result: the worst there is."""


@dataclass(frozen=True)
class Answered:
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

    async def answer(self, sample: Sample, *, seed: int | None) -> Answered:
        """Its answer to one sample. Whatever it raises is a failure of the agent."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


def question_of(sample: Sample) -> Sample:
    """The sample as an agent may see it: without the answer that is expected."""
    shown = {
        key: value
        for key, value in sample.input.items()
        if key not in _HIDDEN and value != sample.ground_truth
    }
    return sample.model_copy(update={"ground_truth": None, "input": shown, "score": None})
