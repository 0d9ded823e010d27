"""A YAML file read as plain data with the line of every value. Nothing in it is believed.

Safe types only, no duplicate or computed keys, and bounds on size, depth and what aliases may
grow to. Spellings that YAML reads as something else than they look are refused.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError, MissingExtra

from .located import Located, Place, shown

if TYPE_CHECKING:
    import yaml

_MOST_BYTES = 256 * 1024
_MOST_VALUES = 20_000
_DEEPEST = 40
_STANDARD = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
"""JSON's numbers: YAML also takes 010 for 8 and 12:30 for 750."""


def read_check_file(path: Path) -> Located:
    """The contents of a check file. Raises `ConfigError` naming the line of what is wrong."""
    if find_spec("yaml") is None:
        raise MissingExtra.needed("checks", by="a check file", package="pyyaml")
    text = _text_of(path)
    root = _composed(text, str(path))
    lines: dict[Place, int] = {}
    value = _Reader(str(path), lines).read(root, ())
    return Located(value, str(path), (), lines)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", where=str(path), hint="check the path"
        ) from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"is larger than {_MOST_BYTES} bytes", where=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", where=f"{path}:{line}") from None


def _composed(text: str, where: str) -> "yaml.Node":
    import yaml

    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"is not YAML: {problem}", where=f"{where}{line}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}", where=where) from None
    except RecursionError:
        raise ConfigError(f"is nested more than {_DEEPEST} deep", where=where) from None
    if root is None:
        raise ConfigError("is empty", where=where, hint="it holds a mapping with the key `checks`")
    return root


class _Reader:
    """Makes plain data of YAML nodes, and notes their lines."""

    def __init__(self, file: str, lines: dict[Place, int]) -> None:
        self._file = file
        self._lines = lines
        self._values = 0

    def read(self, node: "yaml.Node", place: Place) -> Any:
        import yaml

        self._lines.setdefault(place, node.start_mark.line + 1)
        self._values += 1
        # An alias is read again wherever it stands, so its growth is counted here too.
        if self._values > _MOST_VALUES:
            raise self._wrong(node, place, f"holds more than {_MOST_VALUES} values")
        if len(place) > _DEEPEST:
            raise self._wrong(node, place, f"is nested more than {_DEEPEST} deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            self._plain(node, place, "seq")
            return [self.read(each, (*place, at)) for at, each in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: "yaml.MappingNode", place: Place) -> dict[str, Any]:
        self._plain(node, place, "map")
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if key_node.tag != f"{_STANDARD}str" or not isinstance(key, str):
                said = repr(key) if isinstance(key, str) else "a key that is not text"
                raise self._wrong(key_node, place, f"{said} cannot be a key here: keys are text")
            if key in found:
                first = self._lines[(*place, key)]
                raise self._wrong(key_node, place, f"the key {key!r} is given twice; see {first}")
            self._lines[(*place, key)] = key_node.start_mark.line + 1
            found[key] = self.read(value_node, (*place, key))
        return found

    def _scalar(self, node: "yaml.Node", place: Place) -> Any:
        kind, text = node.tag.removeprefix(_STANDARD), str(node.value)
        if kind == "str":
            # JSON's 1e3 is text to YAML 1.1, and a number to whoever writes it without quotes.
            unquoted = getattr(node, "style", None) is None
            return self._number(node, place) if unquoted and _NUMBER.fullmatch(text) else text
        if kind == "null":
            return None
        if kind == "bool" and text in ("true", "false"):
            return text == "true"
        if kind in ("int", "float") and _NUMBER.fullmatch(text):
            return self._number(node, place)
        if node.tag.startswith(_STANDARD):
            hint = f"put it in quotes to have the text {shown(text)}"
            raise self._wrong(node, place, f"{shown(text)} is YAML's spelling of a {kind}", hint)
        raise self._wrong(node, place, f"has the tag {node.tag!r}, which means nothing here")

    def _number(self, node: "yaml.Node", place: Place) -> int | float:
        text = str(node.value)
        if len(text) > 100:
            raise self._wrong(node, place, "is a number of over 100 digits")
        return float(text) if any(mark in text for mark in ".eE") else int(text)

    def _plain(self, node: "yaml.Node", place: Place, kind: str) -> None:
        if node.tag != f"{_STANDARD}{kind}":
            raise self._wrong(node, place, f"has the tag {node.tag!r}, which means nothing here")

    def _wrong(
        self, node: "yaml.Node", place: Place, message: str, hint: str | None = None
    ) -> ConfigError:
        spot = Located(None, self._file, place, {place: node.start_mark.line + 1})
        return spot.wrong(message, hint=hint)
