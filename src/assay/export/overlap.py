"""Find contamination: training samples that repeat texts of an evaluation set.

A text of the evaluation set is a user's message of a prompt, or a ground truth of some length. A
sample repeats it when one of its messages is the same, up to case, spaces and punctuation, or when
it shares so many consecutive words.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from assay.errors import ConfigError
from assay.formats import get_prompt_messages
from assay.types import Sample

from .content_digests import DigestTable

OVERLAP_WORDS = 13
"""Consecutive words that count as an overlap: the 13-grams of GPT-3's contamination study."""

# Shorter ground truths, such as a number, occur in many unrelated samples.
_MIN_TRUTH_WORDS = 5

# Each character is a word in scripts without spaces between words.
_OVERLAP_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


@dataclass(frozen=True)
class Overlap:
    """A text of the evaluation set that a sample repeats."""

    kind: str
    """`the same text`, or the number of words in a row."""

    of: str
    """The name of the text and the id of the evaluation sample."""

    def __str__(self) -> str:
        return f"{self.kind} as {self.of}"


class EvaluationTexts:
    """The texts of an evaluation set as digests, on disk when they are many."""

    def __init__(self, samples: Iterable[Sample], *, words: int = OVERLAP_WORDS) -> None:
        if words < 3:
            raise ConfigError(f"words={words} is too few, the minimum is 3", where="overlap")
        self._words = words
        self._whole = DigestTable()
        self._runs = DigestTable()
        self.samples = 0
        for sample in samples:
            self.samples += 1
            # All samples of one agent share the instructions of the system message.
            asked = (each for each in get_prompt_messages(sample) if each.role == "user")
            texts = [("prompt", message.text) for message in asked]
            truth = sample.ground_truth
            if isinstance(truth, str) and len(_split_words(truth)) >= _MIN_TRUTH_WORDS:
                texts.append(("ground truth", truth))
            for name, text in texts:
                source, found = f"the {name} of {sample.id}", _split_words(text)
                if found:
                    self._whole.first(_digest_words(found), source)
                for run in _digest_runs(found, words):
                    self._runs.first(run, source)
        if not self.samples:
            raise ConfigError("the evaluation set is empty, so no overlap can be found")

    def find_overlap(self, sample: Sample) -> Overlap | None:
        """Return the first text that the sample repeats, or None."""
        own = (each for each in sample.messages if each.role not in ("system", "developer"))
        texts = [_split_words(message.text) for message in own]
        if isinstance(sample.ground_truth, str):
            texts.append(_split_words(sample.ground_truth))
        # Whole texts first: they are the better explanation when both match.
        for words in texts:
            if words and (name := self._whole.get(_digest_words(words))) is not None:
                return Overlap("the same text", name)
        for words in texts:
            for run in _digest_runs(words, self._words):
                if (name := self._runs.get(run)) is not None:
                    return Overlap(f"{self._words} words in a row", name)
        return None


def _split_words(text: str) -> list[str]:
    return _OVERLAP_WORD.findall(text.casefold())


def _digest_runs(words: list[str], length: int) -> Iterator[bytes]:
    for start in range(len(words) - length + 1):
        yield _digest_words(words[start : start + length])


def _digest_words(words: list[str]) -> bytes:
    return blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()
