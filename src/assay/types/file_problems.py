"""What is wrong with a configuration file, told with file, line and path, and what was meant."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from assay.errors import ConfigError

ValuePath = tuple[str | int, ...]
"""The keys and positions that lead to a value from the top of a file."""

ConfigErrorT = TypeVar("ConfigErrorT", bound=ConfigError)
_MAX_LISTED_PROBLEMS = 25


@dataclass(frozen=True)
class FileProblem:
    """One thing that is wrong, and where."""

    file: str
    line: int | None
    place: ValuePath
    message: str
    hint: str | None = None

    @property
    def where(self) -> str:
        """The file, the line and the path, as far as they are known."""
        spot = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{spot}: {format_value_path(self.place)}" if self.place else spot


def build_problems_error(kind: type[ConfigErrorT], problems: Sequence[FileProblem]) -> ConfigErrorT:
    """The error that tells of all problems of a file at once, from top to bottom."""
    ordered = sorted(problems, key=lambda problem: (problem.file, problem.line or 0))
    first, *others = ordered
    if not others:
        return kind(first.message, where=first.where, hint=first.hint)
    lines = [f"{len(problems)} problems"]
    for problem in ordered[:_MAX_LISTED_PROBLEMS]:
        lines.append(f"  {problem.where}: {problem.message}")
        lines += [f"    hint: {problem.hint}"] if problem.hint else []
    if len(problems) > _MAX_LISTED_PROBLEMS:
        lines.append(f"  and {len(problems) - _MAX_LISTED_PROBLEMS} more")
    return kind("\n".join(lines), where=first.file)


def find_nearest_line(lines: Mapping[ValuePath, int], place: ValuePath) -> int | None:
    """The line of a value, or of the nearest thing around it that has one."""
    around = (place[:end] for end in range(len(place), -1, -1))
    return next((lines[each] for each in around if each in lines), None)


def format_value_path(place: ValuePath) -> str:
    """A place as it is written in a message: `checks[2].weight`."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = escape_unprintable(part[:80])
            text += f".{name}" if text else name
    return text


def escape_unprintable(text: str) -> str:
    """`text` with line breaks and control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def suggest_name(word: str, known: Collection[str]) -> str:
    """What may have been meant instead of `word`, or all there is to choose from."""
    close = difflib.get_close_matches(word[:100], known, n=1)
    listed = ", ".join(map(repr, known))
    return f"did you mean {close[0]!r}?" if close else f"known here: {listed}"


def quote_value(value: object, longest: int = 60) -> str:
    """A value as a message quotes it: escaped, and marked where it was cut."""
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
