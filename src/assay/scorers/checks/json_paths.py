"""Paths into JSON values: `$.name`, `$['name']`, `[0]`, `[-1]`, `[*]`, `.*`. No code, no search."""

import re
from dataclasses import dataclass
from typing import Any

from assay.types import shown

from .yaml_node import Located

_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*|\*)
      | \[\s*(?P<index>-?\d{1,9}|\*)\s*\]
      | \[\s*'(?P<single>(?:[^'\\]|\\['\\])*)'\s*\]
      | \[\s*"(?P<double>(?:[^"\\]|\\["\\])*)"\s*\]""",
    re.VERBOSE,
)
_MOST_FOUND = 10_000
_EVERY = "*"
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class JsonPath:
    """A path, and how it was written."""

    source: str
    steps: tuple[str | int, ...]
    every: tuple[bool, ...]
    """Which steps mean all members."""

    def find(self, value: Any) -> list[tuple[str, Any]]:
        """What the path leads to, each with the place it was found at."""
        found = [("$", value)]
        for step, every in zip(self.steps, self.every, strict=True):
            found = [
                (place + suffix, member)
                for place, each in found
                for suffix, member in (_members(each) if every else _member(each, step))
            ][:_MOST_FOUND]
        return found


def parse_json_path(given: Located) -> JsonPath:
    """The path that a check file holds. Raises `ConfigError` for what is none."""
    source = given.text()
    if not source.startswith("$"):
        raise given.wrong(f"{shown(source)} does not begin with `$`", hint=f"write $.{source}")
    steps: list[str | int] = []
    every: list[bool] = []
    position = 1
    while position < len(source):
        match = _STEP.match(source, position)
        if match is None:
            raise given.wrong(
                f"{shown(source)} is not a path, from {shown(source[position:])} on",
                hint="steps are .name, ['name'], [0], [-1], [*] and .*",
            )
        step, all_of_them = _step(match)
        steps.append(step)
        every.append(all_of_them)
        position = match.end()
    return JsonPath(source, tuple(steps), tuple(every))


def _step(match: re.Match[str]) -> tuple[str | int, bool]:
    if (name := match["name"]) is not None:
        return name, name == _EVERY
    if (index := match["index"]) is not None:
        return (index, True) if index == _EVERY else (int(index), False)
    quoted = match["single"] if match["single"] is not None else match["double"]
    return _ESCAPED.sub(r"\1", quoted), False


def _member(value: Any, step: str | int) -> list[tuple[str, Any]]:
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            return [(_key(step), value[step])]
        return []
    if isinstance(value, list) and -len(value) <= step < len(value):
        return [(f"[{step % len(value)}]", value[step])]
    return []


def _members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_key(key), member) for key, member in value.items()]
    if isinstance(value, list):
        return [(f"[{at}]", member) for at, member in enumerate(value)]
    return []


def _key(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{name!r:.80}]"
