"""Lists of samples as lines: score, label and id, then answer, expected answer and reason."""

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

from assay.runner import ListedSample

from .output import Line, Styled, cut, measure_line_width, pad

_MIN_SHOWN_ID_WIDTH = 16
_SHOWN_PLACE_WIDTH = 40
# Longer ids leave no room for a label in 80 columns.
_MAX_SHOWN_ID_CHARS = 60
_FIELD_WIDTH = 10
_REPEAT_SUFFIX = re.compile(r"#[0-9]+$", re.ASCII)
# Further right an id is too far from its label to be read in one line.
_MAX_LABEL_WIDTH = 100


def format_samples(entries: Sequence[ListedSample]) -> Iterator[Line]:
    """Yield a block of lines for each sample: score, label and id, then answer and reason."""
    width = measure_line_width()
    score_width = max((len(entry.score) for entry in entries), default=0)
    id_width = measure_id_width(entry.name for entry in entries)
    for entry in entries:
        # The id of a session is not cut: it is meaningless to read, and there to be copied.
        if entry.session is not None and len(entry.name) <= _MAX_SHOWN_ID_CHARS:
            yield f"  {cut(f'{entry.name} {entry.label}', width - 2)}"
            folder = cut(entry.session.place, _SHOWN_PLACE_WIDTH)
            cells = filter(None, (entry.session.date, folder, entry.score, entry.reason))
            yield f"    {cut(' | '.join(cells), width - 4)}"
            continue
        style = "red" if entry.row.boundary is not None else "bold"
        room = width - 4 - score_width
        yield (
            "  ",
            Styled(pad(entry.score, score_width), style),
            f"  {format_name(entry.label, entry.name, room, id_width)}",
        )
        named = {"answer": entry.answer, "expected": entry.expected, "reason": entry.reason}
        yield from format_named(named.items(), indent=score_width + 4)


def measure_id_width(names: Iterable[str]) -> int:
    """Return the columns for ids beside labels: at most a third of the line."""
    most = max(measure_line_width() // 3, _MIN_SHOWN_ID_WIDTH)
    return min(max(map(cell_len, names), default=0), most)


def format_name(label: str, name: str, room: int, id_width: int) -> str:
    """Format a label and the id beside it in so many columns; the id alone without a label."""
    if not label:
        return _cut_id(name, room)
    label_width = min(room - id_width - 2, _MAX_LABEL_WIDTH)
    if label_width < 1:
        return _cut_id(name, room)
    return f"{pad(label, label_width)}  {_cut_id(name, id_width)}"


def _cut_id(name: str, columns: int) -> str:
    # The number of the repeat distinguishes lines that are otherwise the same.
    repeat = _REPEAT_SUFFIX.search(name)
    if repeat is None or cell_len(name) <= columns:
        return cut(name, columns)
    return cut(name[: repeat.start()], columns - len(repeat[0])) + repeat[0]


def format_named(
    texts: Iterable[tuple[str, str]], *, indent: int, field_width: int = _FIELD_WIDTH
) -> Iterator[str]:
    """Yield a line for each text that is not empty, beside its name and cut to the width."""
    room = measure_line_width() - indent - field_width
    for name, text in texts:
        if text:
            yield f"{' ' * indent}{name:<{field_width}}{cut(text, room)}"
