"""A YAML text read as plain data with the line of every value. Nothing in it is believed.

Plain types only, no duplicate or computed keys, and bounds on size, depth and what aliases may
grow to. Spellings that YAML reads as something else than they look are refused; dates stay text.
JSON is YAML too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from assay.errors import ConfigError

from .file_problems import FileProblem, ValuePath, build_problems_error, find_nearest_line
from .yaml_values import YamlReader, is_number

if TYPE_CHECKING:
    import yaml

MAX_YAML_BYTES = 1024 * 1024
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)
"""JSON's spelling of one character in two halves, which YAML does not have."""


@dataclass(frozen=True)
class YamlDocument:
    """Plain data and where each value of it stands."""

    value: Any
    file: str
    lines: Mapping[ValuePath, int] = field(repr=False)

    def problem(self, place: ValuePath, message: str, hint: str | None = None) -> FileProblem:
        """What is wrong with the value at a place."""
        return FileProblem(self.file, find_nearest_line(self.lines, place), place, message, hint)


def read_limited_text(path: Path, *, kind: type[ConfigError] = ConfigError) -> str:
    """The text of a file of at most `MAX_YAML_BYTES`, without its byte order mark."""
    return decode_utf8(read_limited_bytes(path, kind=kind), file=str(path), kind=kind)


def read_limited_bytes(path: Path, *, kind: type[ConfigError] = ConfigError) -> bytes:
    """The bytes of a file, of which there are at most `MAX_YAML_BYTES`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_YAML_BYTES + 1)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise kind(f"cannot be read: {said}", where=str(path), hint="check the path") from None
    if len(data) > MAX_YAML_BYTES:
        raise kind(f"is larger than {MAX_YAML_BYTES:,} bytes", where=str(path))
    return data


def decode_utf8(data: bytes, *, file: str, kind: type[ConfigError] = ConfigError) -> str:
    """Bytes as text. Raises for what is not UTF-8, with its line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        said = f"is not UTF-8: byte 0x{data[error.start]:02x}"
        raise kind(said, where=f"{file}:{line}", hint="save the file as UTF-8") from None


def parse_yaml(
    text: str, *, file: str, yes_and_no: bool = False, kind: type[ConfigError] = ConfigError
) -> YamlDocument:
    """The data of a YAML text. Raises `kind`, which names the line of everything refused.

    With `yes_and_no` the words `yes`, `no`, `on` and `off` are read as true and false; without
    it they are refused, because some readers take them for text.
    """
    if file.lower().endswith(".json"):
        text = _SURROGATE_PAIR.sub(_join_surrogate_pair, text)
    reader = YamlReader(_parse_yaml_events(text, file, kind), file, yes_and_no=yes_and_no)
    value = reader.document()
    if reader.problems:
        raise build_problems_error(kind, reader.problems)
    return YamlDocument(value, file, reader.lines)


def _join_surrogate_pair(pair: re.Match[str]) -> str:
    high, low = int(pair[2], 16), int(pair[3], 16)
    return pair[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _parse_yaml_events(text: str, file: str, kind: type[ConfigError]) -> Iterator["yaml.Event"]:
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise kind(f"is not YAML: {problem}", where=f"{file}{line}") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise kind(f"is not YAML: {said}", where=file) from None


_UNUSUAL_LINE_BREAKS = "\r\x85\u2028\u2029"


def write_yaml(data: Any) -> str:
    """Plain data as YAML that `parse_yaml` reads back to the same values."""

    class Dumper(yaml.SafeDumper):
        """Writes nothing by reference, and quotes text that this reader takes for a number."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "'" if is_number(text) else None
        if any(character in text for character in _UNUSUAL_LINE_BREAKS):
            style = '"'  # the only style in which a line break other than \n survives
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, quoted)
    written: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return written
