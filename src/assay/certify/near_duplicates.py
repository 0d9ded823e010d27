"""Questions that a dataset asks more than once: copies, and questions that are nearly the same.

Copies count as one sample: they prove no more than one of them does. Near-duplicates are counted
and shown only, because a short difference may be the whole question.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from zlib import crc32

from assay.datasets import ANSWER_KEYS, ID_KEYS, PROMPT_KEYS
from assay.types import Sample

_NON_PROMPT_KEYS = frozenset({*ANSWER_KEYS, *ID_KEYS, *PROMPT_KEYS, "messages", "input_metadata"})
_COUNTER_LABEL = (
    r"(?:question|case|item|sample|example|test|task|variant|copy|version|row|number|id|nr|no|q)"
)
_RUNNING_NUMBER = rf"(?:\(\s*(?:{_COUNTER_LABEL}\W{{0,3}})?\d+\s*\)|\[\s*(?:{_COUNTER_LABEL}\W{{0,3}})?\d+\s*\]|#\s*\d+)"
_LEADING_NUMBER = re.compile(
    rf"^(?:{_RUNNING_NUMBER}|{_COUNTER_LABEL}\W{{0,3}}\d+(?=\W)|\d+(?=\s*[.):]\s))[\s.:)–-]+"
)
_TRAILING_NUMBER = re.compile(rf"\s+(?:{_RUNNING_NUMBER}|{_COUNTER_LABEL}\W{{0,3}}\d+)[\s.]*$")
_RANDOM_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{24,}\b")
_PUNCTUATION = re.compile(r"[.,:;](?!\d)|(?<!\d)[.,:;]|[?!¿¡\"'“”‘’„«»…`]")
_BINS, _BAND = 16, 2
_MIN_SHARED_WORDS = 0.8
"""The share of words that near-duplicates have in common."""
_MAX_COMPARED = 8
"""Texts of a bucket that a text is compared with: with the first ones, or time would be squared."""
_MIN_HASHED_WORDS = 12
"""In a shorter question one word makes another question of it, unless the answer is the same."""
_MIN_MASKED_WORDS = 5
"""Words, the role among them. With fewer, one of them is half of the question."""

MinHashSignature = tuple[int | None, ...]
WordHashes = frozenset[int]


@dataclass
class Questions:
    """The questions of a dataset."""

    samples: int = 0
    same_as: dict[str, str] = field(default_factory=dict)
    """The ids of copies, each with the id of the first sample that asks the same."""

    near: int = 0
    """Of the others, those that are nearly the same as one before them."""

    @property
    def distinct(self) -> int:
        return self.samples - len(self.same_as)


def find_duplicates(samples: Iterable[Sample]) -> Questions:
    """Compare all questions of a dataset, in time that grows with their number alone."""
    found = Questions()
    first: dict[bytes, str] = {}
    alike = _NearDuplicateIndex()
    for sample in samples:
        found.samples += 1
        text = _collect_prompt_text(sample)
        plain, truth = _normalize_question(text), _normalize_question(str(sample.ground_truth))
        # The very same text is the same question, whatever answer is expected. Texts that differ
        # in spelling or in a running number are, where the same answer is expected.
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
    """Finds texts that have most of their words in common.

    Those that may be alike are looked up by bands of minimum hashes, and then compared.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, MinHashSignature], list[WordHashes]] = {}
        self._without_numbers: set[bytes] = set()
        self._without_a_word: set[bytes] = set()

    def add(self, plain: str, truth: str) -> bool:
        """Add a text; whether one before it is nearly the same."""
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
                _compute_word_overlap(words, each) >= _MIN_SHARED_WORDS for each in others
            )
            if len(others) < _MAX_COMPARED:
                others.append(words)
        return near


def _collect_prompt_text(sample: Sample) -> str:
    """All that tells the agent what to do: the messages, and texts beside them in the row."""
    parts = []
    for message in sample.messages:
        # Content of several parts holds more than text, such as pictures.
        asked = message.text if isinstance(message.content, str) else repr(message.content)
        parts.append(f"{message.role}: {asked}")
    beside = {key: each for key, each in sample.input.items() if key not in _NON_PROMPT_KEYS}
    return "\n".join([*parts, *_walk_input_texts(beside)])


def _walk_input_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _walk_input_texts(value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _walk_input_texts(each)


def _normalize_question(text: str) -> str:
    """A text without what makes no other question of it: case, spaces, marks, running numbers."""
    # One space each: a search for what stands behind spaces tries a long run at every place.
    if not text.isascii():
        # Without characters that are not seen, such as a space without width.
        text = "".join(each for each in text if unicodedata.category(each) != "Cf")
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    role, colon, rest = text.partition(": ")
    text = f"{role}{colon}{_LEADING_NUMBER.sub('', rest.lstrip())}" if colon else text
    text = _TRAILING_NUMBER.sub("", _RANDOM_ID.sub(" ", text))
    return " ".join(_PUNCTUATION.sub(" ", text).split())


def _drop_each_word(plain: str) -> list[str]:
    """A short question, and what is left of it without each of its words."""
    words = plain.split()
    if not _MIN_MASKED_WORDS <= len(words) < _MIN_HASHED_WORDS:
        return []
    return [plain, *(" ".join(words[:n] + words[n + 1 :]) for n in range(1, len(words)))]


def _hash_words(plain: str) -> WordHashes:
    """The words of a long question, each with how often it came before; none of a short one."""
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
        place = value % _BINS
        known = bins[place]
        bins[place] = value if known is None else min(known, value)
    return tuple(bins)


def _compute_word_overlap(one: WordHashes, other: WordHashes) -> float:
    return len(one & other) / max(len(one), len(other))


def _hash_question(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
