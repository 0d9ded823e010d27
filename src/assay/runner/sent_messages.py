"""The first messages of a rollout: preparation, digest, and comparison on resume."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from pydantic_core import PydanticSerializationError

from assay.agents import PreparationFailed
from assay.errors import ConfigError
from assay.store import Run, sample_key
from assay.types import Boundary, Message, Sample

from .eval_config import EvalConfig
from .rollout_job import copy_sample

# Fields of a message that no provider is sent: they must not change the digest.
_UNSENT_FIELDS = {"timestamp", "metadata", "provider", "api", "model"}
_NON_TEXT_FIELDS = ("tool_calls", "tool_call_id", "name", "reasoning", "details")


def prepare_messages(config: EvalConfig, sample: Sample) -> list[Message]:
    """Return the first messages of a rollout. Raises `PreparationFailed` if user code fails."""
    prepare = config.prepare_messages
    try:
        given: Any = sample.messages if prepare is None else prepare(sample)
        if type(given) is not list and inspect.iscoroutine(given):
            given.close()  # or Python warns about a coroutine that was never awaited
            raise TypeError("`prepare_messages` is async; make it a plain function")
        if type(given) is not list and isinstance(given, str | Mapping | Message):
            # Iterating over these would give characters, keys or fields.
            kind = type(given).__name__
            raise TypeError(f"`prepare_messages` returned a {kind} instead of a list of messages")
        if config.session is not None:
            given = [*config.session.messages, *given]
        return [
            message if isinstance(message, Message) else Message.model_validate(message)
            for message in given
        ]
    except (Exception, SystemExit) as error:
        raise PreparationFailed(Boundary.DATASET) from error


def digest_messages(messages: Sequence[Message]) -> str | None:
    """Digest the fields that a model is sent, equally in every process.

    Returns None for messages that cannot be written as JSON.
    """
    digest = blake2b(digest_size=16)
    try:
        for message in messages:
            values = message.__dict__
            role, text = values["role"], values["content"]
            if (
                type(text) is str
                and not message.__pydantic_extra__
                and not any(map(values.get, _NON_TEXT_FIELDS))
            ):
                # Most messages are plain text; pydantic takes three times as long for them.
                digest.update(f"{len(role)}:{role}{len(text)}:{text}".encode())
            else:
                write = message.__pydantic_serializer__.to_json
                digest.update(write(message, exclude_defaults=True, exclude=_UNSENT_FIELDS))
    except (PydanticSerializationError, UnicodeEncodeError):
        return None
    return digest.hexdigest()


class PromptCheck:
    """Compares the prompts of a run's recorded rollouts with those that would be sent today."""

    def __init__(self, run: Run, config: EvalConfig) -> None:
        self.run = run
        self.compared: tuple[Sample, int, str] | None = None
        """The first recorded sample that was compared, its repeat and its key."""

        self._config = config
        self._done = run.read_done_keys()
        self._kept = run.read_kept_keys()
        self._prompts = run.prompts()

    def check(self, sample: Sample) -> None:
        """Raise `ConfigError` if a rollout of the sample is recorded with another prompt."""
        for repeat in range(self.run.spec.repeats):
            self._check_repeat(sample, repeat)

    def _check_repeat(self, sample: Sample, repeat: int) -> None:
        run = self.run
        key = sample_key(run.id, sample.id, repeat, run.key_fingerprint)
        if key not in self._done and key not in self._kept:
            return
        try:
            own = sample if run.spec.repeats == 1 else copy_sample(sample, repeat)
            messages = prepare_messages(self._config, own)
        except PreparationFailed as unprepared:
            cause = unprepared.__cause__
            raise self._build_error(sample, f"it cannot be prepared any more: {cause!r}") from cause
        digest = digest_messages(messages)
        if self._prompts.has(key, digest) or self._is_recorded_prompt(key, messages, digest):
            self.compared = self.compared or (sample, repeat, key)
            return
        made_by = "the dataset" if self._config.prepare_messages is None else "`prepare_messages`"
        raise self._build_error(sample, f"{made_by} now gives other messages")

    def _is_recorded_prompt(self, key: str, messages: list[Message], digest: str | None) -> bool:
        """Whether a rollout recorded without a digest started with these messages."""
        if not self._prompts.has(key, None):
            return False
        kept = self.run.find_kept_rollout(key)
        if kept is None or kept.prompt_digest is not None:
            return kept is None
        return digest_messages(kept.trajectory.messages[: len(messages)]) == digest

    def _build_error(self, sample: Sample, why: str) -> ConfigError:
        return ConfigError(
            f"the prompt of sample {sample.id!r} changed since the run was started: {why}",
            where=f"run {self.run.id!r}",
            hint="restore the prompt, or start a new run; derive the seed of a random prompt "
            "from the sample's id",
        )


def check_each_sample(samples: Iterable[Sample], checks: Sequence[PromptCheck]) -> Iterator[Sample]:
    """Yield the samples, each after its check. Raises `ConfigError` for a changed prompt."""
    for sample in samples:
        for check in checks:
            check.check(sample)
        yield sample
