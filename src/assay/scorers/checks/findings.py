"""What a rule found in one sample, and what every rule is."""

from collections.abc import Callable
from dataclasses import dataclass

from .conversation import ConversationView, Passage
from .yaml_node import shorten_text

_EXCERPT_CONTEXT = 30
_MAX_CHECK_EXCERPT = 120


@dataclass(frozen=True)
class CheckFinding:
    """Whether a check passed, and why, in words that can be held against the transcript."""

    passed: bool | None
    """None: could not be judged."""

    reason: str
    score: float | None = None
    """Only of a rule that gives more than yes and no."""


Rule = Callable[[ConversationView], CheckFinding]


def mark_unscored(reason: str) -> CheckFinding:
    return CheckFinding(None, reason)


def cut_excerpt(text: str, start: int = 0, length: int = _MAX_CHECK_EXCERPT) -> str:
    """A piece of a text, escaped, with `…` where it was cut."""
    length = min(length, _MAX_CHECK_EXCERPT)
    first = max(start - _EXCERPT_CONTEXT, 0) if start else 0
    last = min(start + length + _EXCERPT_CONTEXT, len(text))
    # Escaping may make one character four or more: the limit holds for the escaped text too.
    piece = shorten_text(repr(text[first:last]), 4 * _MAX_CHECK_EXCERPT)
    return f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"


def describe_beginning(passage: Passage) -> str:
    """Where a passage stands and how it begins."""
    said = cut_excerpt(passage.text) if passage.text else "empty"
    return f"{passage.what} in {passage.place}: {said}"
