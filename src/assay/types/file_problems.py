"""Problems of a configuration file: file, line, path and a suggestion."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from assay.errors import ConfigError

ValuePath = tuple[str | int, ...]
"""The keys and positions that lead to a value from the root of a file."""

ConfigErrorT = TypeVar("ConfigErrorT", bound=ConfigError)
# More would scroll the first ones, which often cause the rest, out of sight.
_MAX_LISTED_PROBLEMS = 25


@dataclass(frozen=True)
class FileProblem:
    """One problem and its location."""

    file: str
    line: int | None
    place: ValuePath
    message: str
    hint: str | None = None

    @property
    def where(self) -> str:
        """The file, line and path, as far as they are known."""
        spot = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{spot}: {format_value_path(self.place)}" if self.place else spot


def build_problems_error(kind: type[ConfigErrorT], problems: Sequence[FileProblem]) -> ConfigErrorT:
    """Return one error that lists all problems of a file from top to bottom."""
    ordered = sorted(problems, key=lambda problem: (problem.file, problem.line or 0))
    first, *others = ordered
    if not others:
        return kind(first.message, where=first.where, hint=first.hint)
    lines = [f"the file has {len(problems)} problems"]
    for problem in ordered[:_MAX_LISTED_PROBLEMS]:
        lines.append(f"  {problem.where}: {problem.message}")
        lines += [f"    hint: {problem.hint}"] if problem.hint else []
    if len(problems) > _MAX_LISTED_PROBLEMS:
        lines.append(f"  and {len(problems) - _MAX_LISTED_PROBLEMS} more")
    return kind("\n".join(lines), where=first.file)


def find_nearest_line(lines: Mapping[ValuePath, int], place: ValuePath) -> int | None:
    """Return the line of a value, or of its nearest parent that has one."""
    around = (place[:end] for end in range(len(place), -1, -1))
    return next((lines[each] for each in around if each in lines), None)


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
    # Cut, because the matching is quadratic in the length of a hostile word.
    close = difflib.get_close_matches(word[:100], known, n=1)
    listed = ", ".join(map(repr, known))
    return f"did you mean {close[0]!r}?" if close else f"known names: {listed}"


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
