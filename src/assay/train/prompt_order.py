"""The order of the prompts, which depends on the seed only, and their fingerprint."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, WireError
from assay.types import Sample, Status, stable_id

UNROLLED_FIELDS: dict[str, Any] = {
    "trajectory": None,
    "score": None,
    "tokens": [],
    "loss_mask": [],
    "rollout_log_probs": None,
    "status": Status.PENDING,
    "failure": None,
}
"""A prompt may be a sample with an earlier rollout: these fields are reset."""


@dataclass(frozen=True)
class PromptDraw:
    """A prompt at its position in the order."""

    sample: Sample
    position: int
    """How many prompts came before, over all epochs."""

    epoch: int
    """How often this prompt came before."""


class PromptOrder:
    """All prompts in a random order, then all in another, endlessly."""

    def __init__(self, prompts: Sequence[Sample], seed: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def take(self, position: int, count: int) -> list[PromptDraw]:
        """Return `count` prompts, starting at `position`."""
        return [self._draw(place) for place in range(position, position + count)]

    def _draw(self, position: int) -> PromptDraw:
        epoch, place = divmod(position, len(self._prompts))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = list(range(len(self._prompts)))
            # Seeded by epoch: any position can be reached without drawing those before it.
            random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
        return PromptDraw(self._prompts[self._order[place]], position, epoch)


def fingerprint_prompts(
    prompts: Iterable[Sample], sent: Callable[[Sample], str | None] = lambda prompt: None
) -> str:
    """Return a digest of the prompts in order: ids, rows, messages, answers and metadata.

    `sent` returns a digest of the messages that the model gets. Raises `ConfigError` for a prompt
    that cannot be recorded.
    """
    return stable_id([[_digest_prompt(prompt), sent(prompt)] for prompt in prompts])


def _digest_prompt(prompt: Sample) -> str:
    try:
        content = prompt.model_copy(update={**UNROLLED_FIELDS, "index": None}).to_json_bytes()
    except WireError as error:
        raise ConfigError(
            f"the prompt cannot be recorded: {error.message}",
            where=f"sample {prompt.id!r}",
            hint=error.hint,
        ) from error
    return stable_id(json.loads(content))
