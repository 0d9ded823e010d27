"""Word differences of two texts, in time linear in their length.

Words that both texts contain once align them; the parts between are compared with a bounded number
of edits. A part with more edits is one replacement.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, cast

Kind = Literal["same", "old", "new"]

# Signs of scripts without spaces are words by themselves.
_WORD = re.compile(r"[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\s+|.", re.DOTALL)
_MAX_EDITS = 60
_MAX_ROUNDS = 6
# Long texts repeat every word, but not every phrase.
_ANCHOR_LENGTHS = (1, 8)
# Words kept around a change when equal text is left out.
_CONTEXT_WORDS = 24
_MIN_LEFT_OUT = 40

Words = Sequence[str]


class TextChange(NamedTuple):
    """A stretch of text in both, only in the old, or only in the new one."""

    kind: Kind
    text: str


class SidePart(NamedTuple):
    """A stretch of one side; or `left_out` characters of equal text in its place."""

    kind: Kind
    text: str
    left_out: int = 0


def split_words(text: str) -> list[str]:
    """Split a text into words, spaces and signs. Joined they are the text again."""
    return _WORD.findall(text)


def diff_words(old: str, new: str) -> list[TextChange]:
    """Return the stretches that turn `old` into `new`, adjacent ones of a kind joined."""
    changes: list[TextChange] = []
    before: list[str] = []
    after: list[str] = []

    def flush() -> None:
        for kind, words in (("old", before), ("new", after)):
            if words:
                changes.append(TextChange(cast(Kind, kind), "".join(words)))
                words.clear()

    stretches = groupby(
        _align(split_words(old), split_words(new), _MAX_ROUNDS), key=lambda each: each[0] == "same"
    )
    for is_same, group in stretches:
        if not is_same:
            for kind, words in group:
                (before if kind == "old" else after).extend(words)
            continue
        text = "".join(word for _, words in group for word in words)
        # Two replaced words read as one change, not as two around an equal space.
        if before and after and text.isspace():
            before.append(text)
            after.append(text)
            continue
        flush()
        changes.append(TextChange("same", text))
    flush()
    return changes


def select_side(changes: Sequence[TextChange], side: Literal["old", "new"]) -> list[SidePart]:
    """Return one side of a difference as it reads, long equal stretches left out and counted."""
    parts = []
    kept = [change for change in changes if change.kind in ("same", side)]
    for index, change in enumerate(kept):
        if change.kind == side:
            parts.append(SidePart(side, change.text))
        else:
            parts.extend(_shorten_equal(change.text, index == 0, index == len(kept) - 1))
    return parts


def _shorten_equal(text: str, is_first: bool, is_last: bool) -> Iterator[SidePart]:
    # The start of a text is always shown: readers recognise the answer by it.
    words = split_words(text)
    after = 0 if is_last and not is_first else 2 * _CONTEXT_WORDS
    before, end = 2 * _CONTEXT_WORDS, len(words) - after
    if is_first and is_last:
        before, end = len(words), len(words)
    if is_last and not is_first:
        end = len(words)
    if end - before < 2 * _MIN_LEFT_OUT:
        yield SidePart("same", text)
        return
    yield SidePart("same", "".join(words[:before]))
    yield SidePart("same", "", left_out=sum(map(len, words[before:end])))
    if end < len(words):
        yield SidePart("same", "".join(words[end:]))


def _align(old: Words, new: Words, rounds: int) -> Iterator[tuple[Kind, Words]]:
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if start:
        yield "same", old[:start]
    yield from _align_middle(old[start : len(old) - end], new[start : len(new) - end], rounds)
    if end:
        yield "same", old[len(old) - end :]


def _align_middle(old: Words, new: Words, rounds: int) -> Iterator[tuple[Kind, Words]]:
    if not old or not new:
        yield from _replace(old, new)
        return
    anchors: list[tuple[int, int]] = []
    for length in _ANCHOR_LENGTHS if rounds else ():
        anchors = anchors or _find_anchors(_join_words(old, length), _join_words(new, length))
    if not anchors:
        yield from _find_edits(old, new) or _replace(old, new)
        return
    at_old = at_new = 0
    for place_old, place_new in [*anchors, (len(old), len(new))]:
        yield from _align(old[at_old:place_old], new[at_new:place_new], rounds - 1)
        if place_old < len(old):
            yield "same", old[place_old : place_old + 1]
        at_old, at_new = place_old + 1, place_new + 1


def _replace(old: Words, new: Words) -> Iterator[tuple[Kind, Words]]:
    if old:
        yield "old", old
    if new:
        yield "new", new


def _join_words(words: Words, length: int) -> Words:
    if length == 1:
        return words
    return ["\0".join(words[place : place + length]) for place in range(len(words) - length + 1)]


def _find_anchors(old: Words, new: Words) -> list[tuple[int, int]]:
    """Return the longest list of unique common words that is in order in both texts."""
    in_old, in_new = Counter(old), Counter(new)
    places = {word: place for place, word in enumerate(new) if in_new[word] == 1}
    common = [
        (place, places[word])
        for place, word in enumerate(old)
        if in_old[word] == 1 and word in places
    ]
    # Patience sorting: the piles end with the smallest possible last place of each length.
    ends: list[int] = []
    pile_tops: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(common):
        pile = bisect_left(ends, place)
        before.append(pile_tops[pile - 1] if pile else -1)
        ends[pile : pile + 1] = [place]
        pile_tops[pile : pile + 1] = [index]
    found, index = [], pile_tops[-1] if pile_tops else -1
    while index >= 0:
        found.append(common[index])
        index = before[index]
    return found[::-1]


def _find_edits(old: Words, new: Words) -> list[tuple[Kind, Words]]:
    """Return the fewest edits (Myers' algorithm); empty if there are too many."""
    reach, trace = {1: 0}, []
    for edits in range(min(_MAX_EDITS, len(old) + len(new)) + 1):
        trace.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = reach.get(diagonal + 1, 0) if down else reach.get(diagonal - 1, 0) + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _follow_back(old, new, trace)
    return []


def _follow_back(old: Words, new: Words, trace: list[dict[int, int]]) -> list[tuple[Kind, Words]]:
    found: list[tuple[Kind, Words]] = []
    x, y = len(old), len(new)
    for edits in range(len(trace) - 1, -1, -1):
        reach, diagonal = trace[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
        )
        last = diagonal + 1 if down else diagonal - 1
        from_x = reach.get(last, 0) if edits else 0
        from_y = from_x - last if edits else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            found.append(("same", [old[x]]))
        if edits:
            found.append(("new", [new[from_y]]) if down else ("old", [old[from_x]]))
            x, y = from_x, from_y
    return found[::-1]
