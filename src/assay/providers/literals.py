"""Parse JSON and Python literals inside a longer text, in one pass without backtracking."""

import json
import re
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

_JSON = json.JSONDecoder(strict=False)
_WHITESPACE = re.compile(r"\s*+")
_NUMBER_LITERAL = re.compile(r"-?\d++(\.\d++)?+([eE][+-]?\d++)?+")
_CONSTANT_NAME = re.compile(r"[A-Za-z_]\w*+")
_BARE_KEY = re.compile(r"[^:,<{}\[\]]++")
_CONSTANTS = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_LITERAL_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_PLAIN_ESCAPES = "\\'\"/"
# The text comes from a model: deep nesting must not exhaust the stack.
_MAX_LITERAL_DEPTH = 64


def skip_whitespace(text: str, at: int) -> int:
    """Return the first index from `at` on that is not whitespace."""
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


class LiteralReader:
    """Reads JSON and Python literals. Raises `ValueError` for anything else."""

    def __init__(self, text: str, *, quote: str | None = None, bare_keys: bool = False) -> None:
        self.text = text
        self._quote = quote
        """A mark around strings, beside the usual quotes; without escapes inside."""

        self._bare_keys = bare_keys

    def read_whole(self) -> Any:
        """Parse the whole text as one value."""
        value, at = self.read(0)
        if skip_whitespace(self.text, at) != len(self.text):
            raise ValueError(f"more text at {at}")
        return check_storable(value)

    def read(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """Parse the value at an index; return it and its end."""
        at, text = skip_whitespace(self.text, at), self.text
        if depth > _MAX_LITERAL_DEPTH:
            raise ValueError("too deep")
        if text.startswith("{", at):
            return self.read_mapping(at, depth)
        if text.startswith("[", at):
            return self._read_list(at, depth)
        if self._quote and text.startswith(self._quote, at):
            start = at + len(self._quote)
            end = text.index(self._quote, start)
            return text[start:end], end + len(self._quote)
        if text.startswith(("'", '"'), at):
            return self._read_string(at)
        if match := _NUMBER_LITERAL.match(text, at):
            number = float(match[0]) if match[1] or match[2] else int(match[0])
            if isinstance(number, float) and not isfinite(number):
                raise ValueError(f"{match[0]} is too large")
            return number, match.end()
        if (match := _CONSTANT_NAME.match(text, at)) and match[0] in _CONSTANTS:
            return _CONSTANTS[match[0]], match.end()
        raise ValueError(f"no value at {at}")

    def read_mapping(self, at: int, depth: int = 0) -> tuple[dict[str, Any], int]:
        """Parse the mapping that starts at an index."""
        found: dict[str, Any] = {}
        at = skip_whitespace(self.text, at + 1)
        while not self.text.startswith("}", at):
            key, at = self._read_key(at)
            found[key], at = self.read(self._expect(":", at), depth + 1)
            at = self._skip_separator(at, "}")
        return found, at + 1

    def _read_list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = skip_whitespace(self.text, at + 1)
        while not self.text.startswith("]", at):
            value, at = self.read(at, depth + 1)
            found.append(value)
            at = self._skip_separator(at, "]")
        return found, at + 1

    def _skip_separator(self, at: int, end: str) -> int:
        at = skip_whitespace(self.text, at)
        return (
            at
            if self.text.startswith(end, at)
            else skip_whitespace(self.text, self._expect(",", at))
        )

    def _expect(self, mark: str, at: int) -> int:
        at = skip_whitespace(self.text, at)
        if not self.text.startswith(mark, at):
            raise ValueError(f"no {mark!r} at {at}")
        return at + len(mark)

    def _read_key(self, at: int) -> tuple[str, int]:
        quoted = self.text.startswith(("'", '"', self._quote or "'"), at)
        if quoted or not self._bare_keys:
            key, at = self.read(at)
            if not isinstance(key, str):
                raise ValueError(f"a key that is not a string at {at}")
            return key, at
        match = _BARE_KEY.match(self.text, at)
        if match is None:
            raise ValueError(f"no key at {at}")
        return match[0].strip(), match.end()

    def _read_string(self, at: int) -> tuple[str, int]:
        if self.text[at] == '"':
            try:
                # The JSON decoder handles surrogate pairs; `strict=False` accepts raw line breaks.
                text, end = _JSON.raw_decode(self.text, at)
                return str(text), end
            except ValueError:
                pass
        pattern = _SINGLE_QUOTED if self.text[at] == "'" else _DOUBLE_QUOTED
        match = pattern.match(self.text, at)
        if match is None:
            raise ValueError(f"a string without an end at {at}")
        return _LITERAL_ESCAPE.sub(_unescape, match[1]), match.end()


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return escape if escape in _PLAIN_ESCAPES else _ESCAPED_CHARACTERS.get(escape, match[0])


def check_storable(value: Any) -> Any:
    """Raise `ValueError` for values that JSON cannot represent, such as lone surrogates."""
    from_json(to_json(value, inf_nan_mode="constants"), allow_inf_nan=False)
    return value
