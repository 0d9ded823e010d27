"""Marks in texts: the words that a judge or a check quotes, and the matches of a search."""

import ast
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from markupsafe import Markup, escape

from .page import PageModel
from .render import show_hidden_characters

_MAX_QUOTE_CHARS = 2000
_MAX_MARKS = 200
_GAP = re.compile(r"\[?(?:\.\.\.|…)\]?")
_ESCAPES = re.compile(r"\\[nrt]|\\(?=[\"'\\/])")
_PLAIN_MARKS = {"“": '"', "”": '"', "‘": "'", "’": "'", "\u2212": "-"}
_QUOTE_MARKS = {"'": "['‘’]", '"': '["“”]', "-": "[-\u2212]"}
_EXCERPT = re.compile(r"""…?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


class Mark(PageModel):
    """Marked characters of a text."""

    start: int
    end: int
    name: str
    """The quote that is marked, such as `quote-2`, or `find`."""


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Return where a quote begins and ends, regardless of spacing; `...` matches anything."""
    begin: int | None = None
    at = 0
    for piece in _GAP.split(quote[:_MAX_QUOTE_CHARS]):
        words = _ESCAPES.sub(lambda match: " " if len(match[0]) > 1 else "", piece).split()
        pattern = _build_pattern(tuple(words))
        if pattern is None:
            continue
        match = pattern.search(text, at)
        if match is None:
            return None
        begin, at = match.start() if begin is None else begin, match.end()
    return None if begin is None else (begin, at)


@lru_cache(maxsize=256)
def _build_pattern(words: tuple[str, ...]) -> re.Pattern[str] | None:
    # Words have no spaces in them, so that there is one way to match them.
    joined = " ".join(words).strip(" \"'“”‘’")
    if not joined:
        return None
    parts = (
        "".join(_QUOTE_MARKS.get(_PLAIN_MARKS.get(each, each), re.escape(each)) for each in word)
        for word in joined.split()
    )
    return re.compile(r"\s+".join(parts))


def read_excerpt(reason: str, start: int) -> str | None:
    """Return the excerpt that a check quotes within a few characters of a place, unescaped."""
    match = _EXCERPT.search(reason, start, start + 1000)
    if match is None or match.start() > start + 60:
        return None
    try:
        value = ast.literal_eval(match[1])
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) and value.strip() else None


def find_words(wanted: str, text: str) -> list[tuple[int, int]]:
    """Return all places of a searched text, ignoring case."""
    if not wanted:
        return []
    pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    return [match.span() for match in pattern.finditer(text)]


def build_marks(text: str, *, quotes: Sequence[tuple[str, str]], wanted: str) -> tuple[Mark, ...]:
    """Return the marks of a text, in order and without overlaps: quotes first, then matches."""
    found: list[Mark] = []
    for name, quote in quotes:
        if (place := find_quote(quote, text)) is not None:
            found.append(Mark(start=place[0], end=place[1], name=name))
    for start, end in find_words(wanted, text)[:_MAX_MARKS]:
        found.append(Mark(start=start, end=end, name="find"))
    kept: list[Mark] = []
    for mark in sorted(found, key=lambda each: (each.start, each.name == "find")):
        if not kept or mark.start >= kept[-1].end:
            kept.append(mark)
    return tuple(kept)


def render_marks(text: str, marks: Iterable[Mark]) -> Markup:
    """Escape a text and put its marks into `<mark>` elements."""
    parts: list[Markup] = []
    at = 0
    for mark in marks:
        parts.append(escape(show_hidden_characters(text[at : mark.start])))
        inner = show_hidden_characters(text[mark.start : mark.end])
        kind = "find" if mark.name == "find" else "cited"
        parts.append(Markup('<mark class="{}">{}</mark>').format(kind, inner))
        at = mark.end
    parts.append(escape(show_hidden_characters(text[at:])))
    return Markup("").join(parts)
