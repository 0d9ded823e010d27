"""Reads untrusted YAML as plain data, with the position of every value.

Allows plain types only, no duplicate or computed keys, and limits size, depth and the expansion of
aliases. Ambiguous spellings such as `no` and `010` are refused; dates stay text. JSON is YAML too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from assay.errors import ConfigError

from .file_problems import FileProblem, Position, ValuePath, build_problems_error
from .yaml_values import YamlReader, is_number

MAX_YAML_BYTES = 1024 * 1024
# JSON writes a character outside the basic plane as two escapes, which YAML does not join.
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


@dataclass(frozen=True)
class YamlDocument:
    """Plain data and the position of each value."""

    value: Any
    file: str
    positions: Mapping[ValuePath, Position] = field(default_factory=dict, repr=False)
    """Empty for values that are not from a file."""

    def problem(self, place: ValuePath, message: str, hint: str | None = None) -> FileProblem:
        """Return a problem with the value at a path."""
        return FileProblem(self.find_position(place), place, message, hint)

    def find_position(self, place: ValuePath) -> Position:
        """Return the position of a value, or of its nearest parent that has one."""
        around = (place[:end] for end in range(len(place), -1, -1))
        found = (self.positions[each] for each in around if each in self.positions)
        return next(found, Position(self.file))


def read_limited_text(path: Path, *, kind: type[ConfigError] = ConfigError) -> str:
    """Read a file of at most `MAX_YAML_BYTES` as text, without its byte order mark."""
    return decode_utf8(read_limited_bytes(path, kind=kind), file=str(path), kind=kind)


def read_limited_bytes(path: Path, *, kind: type[ConfigError] = ConfigError) -> bytes:
    """Read a file of at most `MAX_YAML_BYTES`."""
    try:
        with path.open("rb") as file:
            # Not `stat`: a pipe or a growing file has no reliable size.
            data = file.read(MAX_YAML_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise kind(
            f"the file cannot be read: {reason}", where=str(path), hint="check the path"
        ) from None
    if len(data) > MAX_YAML_BYTES:
        raise kind(f"the file is larger than {MAX_YAML_BYTES:,} bytes", where=str(path))
    return data


def decode_utf8(data: bytes, *, file: str, kind: type[ConfigError] = ConfigError) -> str:
    """Decode UTF-8. Raises an error with the line of the first invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the file is not UTF-8: byte 0x{data[error.start]:02x}"
        raise kind(message, where=f"{file}:{line}", hint="save the file as UTF-8") from None


def parse_yaml(
    text: str, *, file: str, yes_and_no: bool = False, kind: type[ConfigError] = ConfigError
) -> YamlDocument:
    """Parse a YAML text. Raises `kind`, which lists every problem with its position.

    With `yes_and_no` the words `yes`, `no`, `on` and `off` are read as true and false; without
    it they are refused, because YAML 1.1 and 1.2 disagree about them.
    """
    if file.lower().endswith(".json"):
        text = _SURROGATE_PAIR.sub(
            lambda pair: pair[1] + bytes.fromhex(pair[2] + pair[3]).decode("utf-16-be"), text
        )
    reader = YamlReader(_parse_yaml_events(text, file, kind), file, yes_and_no=yes_and_no)
    value = reader.document()
    if reader.problems:
        raise build_problems_error(kind, reader.problems)
    return YamlDocument(value, file, reader.positions)


def _parse_yaml_events(text: str, file: str, kind: type[ConfigError]) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = Position(file, *((mark.line + 1, mark.column + 1) if mark else ()))
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise kind(f"the file is not YAML: {problem}", where=str(spot)) from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise kind(f"the file is not YAML: {problem}", where=file) from None


_UNUSUAL_LINE_BREAKS = "\r\x85\u2028\u2029"


def write_yaml(data: Any) -> str:
    """Return plain data as YAML that `parse_yaml` reads back to the same values."""

    class Dumper(yaml.SafeDumper):
        """Writes no aliases, and quotes text that `parse_yaml` would read as a number."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "'" if is_number(text) else None
        if any(character in text for character in _UNUSUAL_LINE_BREAKS):
            style = '"'  # the only style in which a line break other than \n survives
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    written: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return written
