"""A guard against training on what is evaluated: texts of an evaluation set, and who repeats them.

A text of the evaluation set is a user's message of a prompt, or a ground truth of some length. A
sample repeats it when one of its messages says the same, up to case, spaces and punctuation, or
when so many words in a row are the same.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from assay.errors import ConfigError
from assay.formats import asked_of
from assay.types import Sample

from .content_digests import Seen

WORDS = 13
"""Words in a row that are no coincidence."""

_LEAST_OF_TRUTH = 5
"""Shorter ground truths, such as a number, are everywhere."""

# Scripts without spaces between words count by the character.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


@dataclass(frozen=True)
class Overlap:
    """What a sample repeats."""

    kind: str
    """`the same text`, or so many words in a row."""

    of: str
    """Which text of which evaluation sample."""

    def __str__(self) -> str:
        return f"{self.kind} as {self.of}"


class EvaluationTexts:
    """The texts of an evaluation set, as digests: on disk where they are many."""

    def __init__(self, samples: Iterable[Sample], *, words: int = WORDS) -> None:
        if words < 3:
            raise ConfigError(f"words={words} is too few to tell anything", where="overlap")
        self._words = words
        self._whole = Seen()
        self._runs = Seen()
        self.samples = 0
        for sample in samples:
            self.samples += 1
            for name, text in _evaluated(sample):
                self._take(text, f"the {name} of {sample.id}")
        if not self.samples:
            raise ConfigError("the evaluation set is empty, so nothing is guarded against")

    def _take(self, text: str, name: str) -> None:
        words = _words(text)
        if words:
            self._whole.first(_digest(words), name)
        for run in _runs(words, self._words):
            self._runs.first(run, name)

    def found_in(self, sample: Sample) -> Overlap | None:
        """What the sample repeats, or None."""
        texts = [_words(text) for text in _said(sample)]
        for words in texts:
            if words and (name := self._whole.get(_digest(words))) is not None:
                return Overlap("the same text", name)
        for words in texts:
            for run in _runs(words, self._words):
                if (name := self._runs.get(run)) is not None:
                    return Overlap(f"{self._words} words in a row", name)
        return None


def _evaluated(sample: Sample) -> Iterator[tuple[str, str]]:
    # Instructions in a system message are shared by all samples of one agent.
    for message in asked_of(sample):
        if message.role == "user":
            yield "prompt", message.text
    truth = sample.ground_truth
    if isinstance(truth, str) and len(_words(truth)) >= _LEAST_OF_TRUTH:
        yield "ground truth", truth


def _said(sample: Sample) -> Iterator[str]:
    for message in sample.messages:
        if message.role not in ("system", "developer"):
            yield message.text
    if isinstance(sample.ground_truth, str):
        yield sample.ground_truth


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: list[str], length: int) -> Iterator[bytes]:
    for start in range(len(words) - length + 1):
        yield _digest(words[start : start + length])


def _digest(words: list[str]) -> bytes:
    return blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()
