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
        drawn = []
        for each in range(position, position + count):
            epoch, place = divmod(each, len(self._prompts))
            if epoch != self._epoch:
                self._epoch = epoch
                self._order = list(range(len(self._prompts)))
                # Seeded by epoch: any position can be reached without drawing those before it.
                random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
            drawn.append(PromptDraw(self._prompts[self._order[place]], each, epoch))
        return drawn


def fingerprint_prompts(
    prompts: Iterable[Sample], sent: Callable[[Sample], str | None] = lambda prompt: None
) -> str:
    """Return a digest of the prompts in order: ids, rows, messages, answers and metadata.

    `sent` returns a digest of the messages that the model gets. Raises `ConfigError` for a prompt
    that cannot be recorded.
    """
    digests = []
    for prompt in prompts:
        try:
            # A prompt may bring an earlier rollout, which is not used and may change.
            content = prompt.model_copy(update={**UNROLLED_FIELDS, "index": None}).to_json_bytes()
        except WireError as error:
            raise ConfigError(
                f"the prompt cannot be recorded: {error.message}",
                where=f"sample {prompt.id!r}",
                hint=error.hint,
            ) from error
        digests.append([stable_id(json.loads(content)), sent(prompt)])
    return stable_id(digests)
