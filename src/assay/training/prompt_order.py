"""Which prompt comes when: the same order for the same seed, whoever asks and whenever."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from assay.models import Sample


@dataclass(frozen=True)
class Drawn:
    """A prompt at its place in the order."""

    sample: Sample
    position: int
    """How many prompts came before, over all epochs."""

    epoch: int
    """How often this prompt came before."""


class PromptOrder:
    """All prompts in a random order, then all in another, without end."""

    def __init__(self, prompts: Sequence[Sample], seed: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def take(self, position: int, count: int) -> list[Drawn]:
        """The `count` prompts from `position` on."""
        return [self._at(place) for place in range(position, position + count)]

    def _at(self, position: int) -> Drawn:
        epoch, place = divmod(position, len(self._prompts))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = list(range(len(self._prompts)))
            random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
        return Drawn(self._prompts[self._order[place]], position, epoch)
