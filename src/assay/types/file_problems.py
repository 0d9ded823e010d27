"""Problems of a configuration file: position, path and a suggestion."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from assay.errors import ConfigError

ValuePath = tuple[str | int, ...]
"""The keys and positions that lead to a value from the root of a file."""

ConfigErrorT = TypeVar("ConfigErrorT", bound=ConfigError)
# More would scroll the first ones, which often cause the rest, out of sight.
_MAX_LISTED_PROBLEMS = 25


class Position(NamedTuple):
    """A position in a file, counted from 1."""

    file: str
    line: int = 0
    """0 for values that are not from a file."""

    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class InvalidValue(ValueError):
    """A validator refuses a value. `place` leads from the value to the part that is wrong."""

    def __init__(self, message: str, *, hint: str | None = None, place: ValuePath = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.place = place


@dataclass(frozen=True)
class FileProblem:
    """One problem and its location."""

    position: Position
    place: ValuePath
    message: str
    hint: str | None = None

    @property
    def where(self) -> str:
        """The position and the path, as far as they are known."""
        spot = str(self.position)
        return f"{spot}: {format_value_path(self.place)}" if self.place else spot


def build_problems_error(kind: type[ConfigErrorT], problems: Sequence[FileProblem]) -> ConfigErrorT:
    """Return one error that lists all problems of a file from top to bottom."""
    ordered = sorted(problems, key=lambda problem: problem.position)
    first, *others = ordered
    if not others:
        return kind(first.message, where=first.where, hint=first.hint)
    lines = [f"the file has {len(problems)} problems"]
    for problem in ordered[:_MAX_LISTED_PROBLEMS]:
        lines.append(f"  {problem.where}: {problem.message}")
        lines += [f"    hint: {problem.hint}"] if problem.hint else []
    if len(problems) > _MAX_LISTED_PROBLEMS:
        lines.append(f"  and {len(problems) - _MAX_LISTED_PROBLEMS} more")
    return kind("\n".join(lines), where=first.position.file)


def format_value_path(place: ValuePath) -> str:
    """Return a path in the form used in messages: `checks[2].weight`."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = escape_unprintable(part[:80])
            text += f".{name}" if text else name
    return text


def escape_unprintable(text: str) -> str:
    """Return `text` with line breaks and control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def suggest_name(word: str, known: Collection[str]) -> str:
    """Return a hint: the known name closest to `word`, or all known names."""
    close = find_close_name(word, known)
    return f"did you mean {close!r}?" if close else f"known names: {', '.join(map(repr, known))}"


def find_close_name(word: str, known: Collection[str]) -> str | None:
    """Return the known name closest to `word`, if any is close."""
    # Cut, because the matching is quadratic in the length of a hostile word.
    return next(iter(difflib.get_close_matches(word[:100], known, n=1)), None)


def quote_value(value: object, longest: int = 60) -> str:
    """Return a value quoted for a message: escaped, and shortened with an ellipsis."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value if not isinstance(value, str) else value[: longest + 1])
    return text if len(text) <= longest + 2 else f"{text[:longest]}…"
