"""The result of a check on one sample, and the excerpts that its reason quotes."""

from collections.abc import Iterable
from dataclasses import dataclass

from .conversation import Passage

# Characters that are shown before and after a match.
_EXCERPT_CONTEXT = 30
_MAX_CHECK_EXCERPT = 120


@dataclass(frozen=True)
class CheckFinding:
    """Whether a check passed, with a reason that quotes the transcript."""

    passed: bool | None
    """None: unscored."""

    reason: str
    score: float | None = None
    """Only for rules that return more than pass or fail."""


def mark_unscored(reason: str) -> CheckFinding:
    """Return the finding of a check that cannot be decided."""
    return CheckFinding(None, reason)


def combine_findings(findings: Iterable[CheckFinding], *, every: bool) -> CheckFinding:
    """Return the finding that decides: with `every` the first failure, else the first pass."""
    same: list[CheckFinding] = []
    for found in findings:
        if found.passed is not every:
            return found
        same.append(found)
    more = f"; the same of {len(same) - 1} more" if len(same) > 1 else ""
    return CheckFinding(same[0].passed, same[0].reason + more)


def cut_excerpt(text: str, start: int = 0, length: int = _MAX_CHECK_EXCERPT) -> str:
    """Return a piece of a text, escaped, with `…` where it was cut."""
    length = min(length, _MAX_CHECK_EXCERPT)
    first = max(start - _EXCERPT_CONTEXT, 0) if start else 0
    last = min(start + length + _EXCERPT_CONTEXT, len(text))
    # Escaping may make one character four or more: the limit holds for the escaped text too.
    piece = cut_quote(repr(text[first:last]), 4 * _MAX_CHECK_EXCERPT)
    return f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"


def describe_beginning(passage: Passage) -> str:
    """Return the position of a passage and its first characters."""
    beginning = cut_excerpt(passage.text) if passage.text else "empty"
    return f"{passage.what} in {passage.place}: {beginning}"


def cut_quote(text: str, longest: int) -> str:
    """Return `text`, cut to `longest` characters with `…` at the end."""
    return text if len(text) <= longest else f"{text[:longest]}…"
