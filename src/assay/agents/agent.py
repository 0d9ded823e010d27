"""The protocol of agents: a sample in, a trajectory out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.datasets import ANSWER_KEYS, PROMPT_KEYS
from assay.errors import AssayError
from assay.types import Boundary, Message, Sample, Trajectory

from .agent_limits import Limits

if TYPE_CHECKING:
    from .agent_client import AgentClient

COMMAND_PREFIX = "cmd:"
"""What the reference to a command agent starts with."""

CHECK_FILES_FIELD = "check_files"
"""The field of a row with files that only the check of its workspace sees."""

# Fields of a row that contain the expected answer, at any depth.
_ANSWER_FIELDS = frozenset(
    {*ANSWER_KEYS, "reward_model", "reward_spec", "trajectory", "score", CHECK_FILES_FIELD}
    | {"correct", "correct_answer", "correct_answers", "is_correct"}
)
# Fields that are shown whatever they contain: the question and its options.
_SHOWN_FIELDS = frozenset({*PROMPT_KEYS, "choices", "options", "candidates", "endings"})
# A row of very many fields with the answer must not take the square of their number.
_MAX_OPTIONS = 1000
# The letter or number of one option among several: `a`, `option_2`, `choiceB`.
_OPTION_MARK = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=[A-Z0-9]))(?:[A-Za-z]|\d+)$")


class AgentFault(AssayError):
    """The agent returned no answer."""


class PreparationFailed(Exception):
    """A rollout could not be started; `__cause__` is the reason."""

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary


@dataclass(slots=True, kw_only=True)
class RunContext:
    """What an agent gets beside the sample."""

    messages: list[Message]
    """The prompt: the sample's messages, or those of `prepare_messages`."""

    repeat: int = 0
    seed: int | None = None
    """The seed of the environment."""

    sampling_seed: int | None = None
    timeout_s: float | None = None
    """The time limit of the sample. The runner enforces it."""

    limits: Limits = field(default_factory=Limits)
    client: "AgentClient | None" = None
    """The model of the run, if it has an `endpoint`. Calls through it are recorded."""

    base_url: str | None = None
    """The address at which clients of OpenAI's API reach the model of the run, if it has an
    `endpoint`. Calls to it are recorded."""

    api_key: str | None = None
    """The key for `base_url`, of this rollout only."""

    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables by which programs find `base_url`: `OPENAI_BASE_URL` and others."""

    workspace: Path | None = None
    """The folder of this rollout, with the files of the sample, if the run has one."""


@runtime_checkable
class Agent(Protocol):
    """Turns a sample into a trajectory.

    `close()` is called at the end of each run, if the agent has one. The agent may be run again.
    """

    @property
    def name(self) -> str:
        """The name of the agent in reports, without secrets."""
        ...

    @property
    def identity(self) -> str:
        """A string that differs between agents that may answer differently.

        It is a part of the run's fingerprint, and must be the same in every process.
        """
        ...

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Answer one sample, which has no expected answer. Exceptions are failures of the agent."""
        ...


def hide_expected_answer(sample: Sample, messages: list[Message] | None = None) -> Sample:
    """Return a copy of the sample without the expected answer, for an agent.

    A field with the answer, or with one of several accepted answers, is dropped under any name,
    unless it is the question or one of several options: an option does not show that it is the
    answer. `messages` replace the prompt, if given.
    """
    answer = _ExpectedAnswer(sample.ground_truth)
    prompt = sample.prompt if messages is None else messages
    question = sample.model_copy(
        update={
            # Copied: an agent that changes its question must not change the question that is
            # graded. Messages themselves are immutable.
            "prompt": list(prompt) if isinstance(prompt, list) else prompt,
            "ground_truth": None,
            "trajectory": None,
            "score": None,
            "input": answer.drop_from(sample.input),
            "metadata": answer.drop_from(sample.metadata),
        }
    )
    if sample.model_extra:
        # Fields beside those of a sample, as rows of eval-protocol have them.
        question.__pydantic_extra__ = answer.drop_from(sample.model_extra)
    return question


class _ExpectedAnswer:
    """The ground truth of a sample, as it may be repeated in other fields of its row."""

    def __init__(self, truth: object) -> None:
        self._truth = truth
        # The items of a list of texts are accepted answers. Numbers are parts of one answer.
        each = [item for item in truth if isinstance(item, str)] if isinstance(truth, list) else []
        self._texts = {text for item in (truth, *each) if (text := _normalize(item))}

    def drop_from(self, value: Any, siblings: Sequence[Any] = ()) -> Any:
        """Return a value of a row without the fields that contain the answer, at any depth."""
        if isinstance(value, dict):
            return {
                key: self.drop_from(each)
                for key, each in value.items()
                if key not in _ANSWER_FIELDS
                and (
                    not self._is_repeated_in(each)
                    or key in _SHOWN_FIELDS
                    or _is_option(key, value, siblings)
                )
            }
        if isinstance(value, list):
            return [self.drop_from(each, value) for each in value]
        return value

    def _is_repeated_in(self, value: object) -> bool:
        if isinstance(value, list):
            found = {_normalize(each) for each in value}
            # All accepted answers in another order are rather the items of a question of order.
            is_subset = found <= self._texts and (found != self._texts or len(found) == 1)
            return bool(value) and (value == self._truth or is_subset)
        if isinstance(value, dict):
            return bool(value) and value == self._truth
        return _normalize(value) in self._texts


def _normalize(value: object) -> str | None:
    """Return a text or number as the text that any spelling of it has; None for other values."""
    if isinstance(value, str):
        return value.strip().casefold()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and value.bit_length() > 64:
        return None  # Python refuses to write very long numbers
    return str(value).casefold() if isinstance(value, int | float) else None


def _is_option(key: object, row: dict[Any, Any], siblings: Sequence[Any]) -> bool:
    """Whether a field is one of several that are alike in name and differ in value.

    They are in the same row, or in the other objects of a list.
    """
    if any(
        isinstance(each, dict) and each.get(key, row[key]) != row[key]
        for each in siblings[:_MAX_OPTIONS]
    ):
        return True
    name = str(key)
    stem = _OPTION_MARK.sub("", name)
    return stem != name and any(
        each != row[key] and stem == _OPTION_MARK.sub("", str(other)) != str(other)
        for other, each in islice(row.items(), _MAX_OPTIONS)
    )
