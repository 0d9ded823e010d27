"""What a rule found in one sample, and what every rule is."""

from collections.abc import Callable
from dataclasses import dataclass

from .conversation import Passage, Reading
from .yaml_node import brief

_AROUND = 30
_LONGEST = 120


@dataclass(frozen=True)
class Finding:
    """Whether a check passed, and why, in words that can be held against the transcript."""

    passed: bool | None
    """None: could not be judged."""

    reason: str
    score: float | None = None
    """Only of a rule that gives more than yes and no."""


Rule = Callable[[Reading], Finding]


def not_judged(reason: str) -> Finding:
    return Finding(None, reason)


def excerpt(text: str, start: int = 0, length: int = _LONGEST) -> str:
    """A piece of a text, escaped, with `…` where it was cut."""
    length = min(length, _LONGEST)
    first = max(start - _AROUND, 0) if start else 0
    last = min(start + length + _AROUND, len(text))
    piece = repr(text[first:last])
    return f"{'…' if first else ''}{brief(piece, 4 * _LONGEST)}{'…' if last < len(text) else ''}"


def beginning(passage: Passage) -> str:
    """Where a passage stands and how it begins."""
    said = excerpt(passage.text) if passage.text else "empty"
    return f"{passage.what} in {passage.place}: {said}"
