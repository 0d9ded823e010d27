"""Duplicates and near-duplicates among the questions of a dataset.

Duplicates count as one sample: they prove no more than one of them does. Near-duplicates are only
reported, because a short difference may change the whole question.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from zlib import crc32

from assay.datasets import ANSWER_KEYS, ID_KEYS, PROMPT_KEYS
from assay.types import Sample

from .code_digests import walk_texts

_NON_PROMPT_KEYS = frozenset({*ANSWER_KEYS, *ID_KEYS, *PROMPT_KEYS, "messages", "input_metadata"})
_COUNTER_LABEL = (
    r"(?:question|case|item|sample|example|test|task|variant|copy|version|row|number|id|nr|no|q)"
)
_LABELLED_NUMBER = rf"\s*(?:{_COUNTER_LABEL}\W{{0,3}})?\d+\s*"
_RUNNING_NUMBER = rf"(?:\({_LABELLED_NUMBER}\)|\[{_LABELLED_NUMBER}\]|#\s*\d+)"
_LEADING_NUMBER = re.compile(
    rf"^(?:{_RUNNING_NUMBER}|{_COUNTER_LABEL}\W{{0,3}}\d+(?=\W)|\d+(?=\s*[.):]\s))[\s.:)–-]+"
)
_TRAILING_NUMBER = re.compile(rf"\s+(?:{_RUNNING_NUMBER}|{_COUNTER_LABEL}\W{{0,3}}\d+)[\s.]*$")
_RANDOM_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{24,}\b")
_PUNCTUATION = re.compile(r"[.,:;](?!\d)|(?<!\d)[.,:;]|[?!¿¡\"'“”‘’„«»…`]")

# MinHash: 16 bins in bands of 2. Texts that share a band are compared.
_BINS, _BAND = 16, 2

# The share of words that near-duplicates have in common.
_MIN_SHARED_WORDS = 0.8

# Texts of a bucket that a text is compared with: comparing with all would take quadratic time.
_MAX_COMPARED = 8

# In a shorter question one word can change the meaning, unless the expected answer is the same.
_MIN_HASHED_WORDS = 12

# Words, including the role. With fewer, one word is half of the question.
_MIN_MASKED_WORDS = 5

MinHashSignature = tuple[int | None, ...]
WordHashes = frozenset[int]


@dataclass
class Questions:
    """The questions of a dataset."""

    samples: int = 0
    same_as: dict[str, str] = field(default_factory=dict)
    """Ids of duplicates, each with the id of the first sample with the question."""

    near: int = 0
    """Distinct questions that are nearly the same as an earlier one."""

    @property
    def distinct(self) -> int:
        return self.samples - len(self.same_as)


def find_duplicates(samples: Iterable[Sample]) -> Questions:
    """Compare all questions of a dataset, in linear time."""
    found = Questions()
    first: dict[bytes, str] = {}
    alike = _NearDuplicateIndex()
    for sample in samples:
        found.samples += 1
        text = _collect_prompt_text(sample)
        plain, truth = _normalize_question(text), _normalize_question(str(sample.ground_truth))
        # Identical texts are duplicates whatever answer is expected. Texts that differ only in
        # spelling or in a running number are duplicates if the expected answer is the same.
        keys = (_hash_question(" ".join(text.split())), _hash_question(f"{plain}\0{truth}"))
        same = next((first[key] for key in keys if key in first), None)
        for key in keys:
            first.setdefault(key, sample.id if same is None else same)
        if same is not None:
            found.same_as[sample.id] = same
        elif alike.add(plain, truth):
            found.near += 1
    return found


class _NearDuplicateIndex:
    """Finds texts with most of their words in common, by bands of minimum hashes."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, MinHashSignature], list[WordHashes]] = {}
        self._without_numbers: set[bytes] = set()
        self._without_a_word: set[bytes] = set()

    def add(self, plain: str, truth: str) -> bool:
        """Add a text. Returns whether an earlier one is nearly the same."""
        masked = _hash_question(f"{re.sub(r'[0-9]+', '0', plain)}\0{truth}")
        near = masked in self._without_numbers
        self._without_numbers.add(masked)
        shorter = {
            _hash_question(f"{each}\0{truth}") for each in _drop_each_word(plain) if truth != "none"
        }
        near = near or not self._without_a_word.isdisjoint(shorter)
        self._without_a_word |= shorter
        words = _hash_words(plain)
        signature = _compute_signature(words)
        for band in range(0, _BINS, _BAND):
            part = signature[band : band + _BAND]
            if part.count(None) == _BAND:
                continue
            others = self._buckets.setdefault((band, part), [])
            near = near or any(
                len(words & each) / max(len(words), len(each)) >= _MIN_SHARED_WORDS
                for each in others
            )
            if len(others) < _MAX_COMPARED:
                others.append(words)
        return near


def _collect_prompt_text(sample: Sample) -> str:
    """Collect all instructions: the messages, and other texts of the row."""
    parts = []
    for message in sample.messages:
        # Content of several parts contains more than text, such as images.
        text = message.text if isinstance(message.content, str) else repr(message.content)
        parts.append(f"{message.role}: {text}")
    beside = {key: each for key, each in sample.input.items() if key not in _NON_PROMPT_KEYS}
    return "\n".join([*parts, *walk_texts(beside)])


def _normalize_question(text: str) -> str:
    """Remove differences that do not change a question: case, spaces, punctuation, numbering."""
    if not text.isascii():
        # Invisible format characters, such as a zero-width space.
        text = "".join(each for each in text if unicodedata.category(each) != "Cf")
    # Collapse spaces first: the patterns below backtrack over long runs of them.
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    role, colon, rest = text.partition(": ")
    text = f"{role}{colon}{_LEADING_NUMBER.sub('', rest.lstrip())}" if colon else text
    text = _TRAILING_NUMBER.sub("", _RANDOM_ID.sub(" ", text))
    return " ".join(_PUNCTUATION.sub(" ", text).split())


def _drop_each_word(plain: str) -> list[str]:
    """Return a short question, and its variants with one word removed."""
    words = plain.split()
    if not _MIN_MASKED_WORDS <= len(words) < _MIN_HASHED_WORDS:
        return []
    return [plain, *(" ".join(words[:n] + words[n + 1 :]) for n in range(1, len(words)))]


def _hash_words(plain: str) -> WordHashes:
    """Hash the words of a long question with their counts; none for a short question."""
    words = plain.split()
    if len(words) < _MIN_HASHED_WORDS:
        return frozenset()
    seen: Counter[str] = Counter()
    found = set()
    for word in words:
        seen[word] += 1
        found.add(crc32(f"{seen[word]} {word}".encode("utf-8", "replace")))
    return frozenset(found)


def _compute_signature(words: WordHashes) -> MinHashSignature:
    bins: list[int | None] = [None] * _BINS
    for value in words:
        index = value % _BINS
        known = bins[index]
        bins[index] = value if known is None else min(known, value)
    return tuple(bins)


def _hash_question(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
