"""Paths into JSON values: `$.name`, `$['name']`, `[0]`, `[-1]`, `[*]`, `.*`. No code, no search."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator

from assay.types import InvalidValue, quote_value

_PATH_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*|\*)
      | \[\s*(?P<index>-?\d{1,9}|\*)\s*\]
      | \[\s*'(?P<single>(?:[^'\\]|\\['\\])*)'\s*\]
      | \[\s*"(?P<double>(?:[^"\\]|\\["\\])*)"\s*\]""",
    re.VERBOSE,
)
# `[*][*][*]` over nested lists multiplies: a check must not run out of memory on a large output.
_MAX_MATCHES = 10_000
_WILDCARD = "*"
_PATH_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True)
class JsonPath:
    """A parsed path and its source."""

    source: str
    steps: tuple[str | int, ...]
    every: tuple[bool, ...]
    """Which steps are wildcards."""

    def find(self, value: Any) -> list[tuple[str, Any]]:
        """Return the values at the path, each with its own path."""
        found = [("$", value)]
        for step, every in zip(self.steps, self.every, strict=True):
            found = [
                (place + suffix, member)
                for place, each in found
                for suffix, member in _find_members(each, None if every else step)
            ][:_MAX_MATCHES]
        return found


def parse_json_path(source: Any) -> JsonPath:
    """Parse a path of a check file. Raises `InvalidValue` for an invalid one."""
    if not isinstance(source, str) or not source:
        raise InvalidValue(f"the value is {quote_value(source)}, not a path")
    if not source.startswith("$"):
        raise InvalidValue(
            f"{quote_value(source)} does not begin with `$`", hint=f"write $.{source}"
        )
    steps: list[str | int] = []
    every: list[bool] = []
    position = 1
    while position < len(source):
        match = _PATH_STEP.match(source, position)
        if match is None:
            raise InvalidValue(
                f"{quote_value(source)} is not a valid path: unexpected "
                f"{quote_value(source[position:])}",
                hint="valid steps are .name, ['name'], [0], [-1], [*] and .*",
            )
        bare = match["name"] or match["index"]
        quoted = match["single"] if match["single"] is not None else match["double"]
        every.append(bare == _WILDCARD)
        if bare is None:
            steps.append(_PATH_ESCAPE.sub(r"\1", quoted))
        else:
            steps.append(bare if match["name"] or every[-1] else int(bare))
        position = match.end()
    return JsonPath(source, tuple(steps), tuple(every))


JsonPathText = Annotated[JsonPath, PlainValidator(parse_json_path)]


def _find_members(value: Any, step: str | int | None) -> list[tuple[str, Any]]:
    # Without a step: all members.
    if isinstance(value, dict):
        named = value.items() if step is None else [(step, value[step])] if step in value else []
        return [
            (f".{key}" if str(key).isidentifier() else f"[{str(key)!r:.80}]", member)
            for key, member in named
        ]
    if not isinstance(value, list) or isinstance(step, str):
        return []
    if step is None:
        return [(f"[{at}]", member) for at, member in enumerate(value)]
    # Reported with the index from the start, also for [-1].
    fits = -len(value) <= step < len(value)
    return [(f"[{step % len(value)}]", value[step])] if fits else []
