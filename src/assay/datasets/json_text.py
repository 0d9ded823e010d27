"""A strict parser for one JSON object: ambiguous input is refused, not guessed at."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import isfinite, isinf
from typing import Any

from pydantic_core import from_json

_ERROR_POSITION = re.compile(r" at line (\d+) column (\d+)$")
_CONSTANT = re.compile(rb"NaN|-?Infinity")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|-?[0-9][0-9.eE+-]*', re.S)
_SURROGATE_CODE_POINT = re.compile(r"[\ud800-\udfff]")
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")
_CONTAINERS = (dict, list, tuple)
# Neither containers nor floats: most rows contain nothing else and need no walk.
_FLAT_TYPES = frozenset({str, int, bool, type(None)})

_TYPE_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_NULL_HINT = "write null for an unknown number"


class JsonProblem(Exception):
    """Bytes are not one valid JSON object.

    `message` is a predicate: callers put their subject (the line, the element) in front of it.
    """

    def __init__(
        self, message: str, *, offset: int, hint: str | None = None, cut_off: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint
        self.cut_off = cut_off


def parse_json_object(data: bytes, *, max_depth: int) -> dict[str, Any]:
    """Parse the JSON object in `data`. Raises `JsonProblem`.

    Also refuses repeated keys, NaN, infinities, lone surrogates and nesting deeper than
    `max_depth`: other parsers disagree on their meaning.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise _explain_parse_error(data, str(error), max_depth) from None
    if type(value) is not dict:
        raise JsonProblem(
            f"is {_TYPE_NAMES.get(type(value), 'a number')}, not an object",
            offset=0,
            hint='a row looks like {"prompt": "…"}',
        )
    keys, depth, finite = measure_json(value, max_depth)
    if depth > max_depth:
        raise _build_depth_error(data, max_depth)
    if not finite:
        raise JsonProblem(
            "contains a number too large for a float",
            offset=next(
                at
                for token, at, _ in _scan_json_tokens(data)
                if token[:1] in b"-0123456789" and isinf(float(token))
            ),
            hint=_NULL_HINT,
        )
    # Every key ends in a quote and a colon, so their count is an upper bound. If the value has as
    # many keys, none repeats. Otherwise the text is parsed again, at four times the cost: a quoted
    # colon inside a string, or space before a colon, looks the same from here.
    quoted = data.count(b'":')
    # Not `in`: for bytes it first tries an integer and catches the error, which is slower.
    if keys != quoted or (data.count(b":") != quoted and max(map(data.find, _SPACED_COLONS)) >= 0):
        _refuse_repeated_keys(data)
    return value


def measure_json(value: dict[str, Any], max_depth: int) -> tuple[int, int, bool]:
    """Return the number of keys, the depth, and whether all numbers are finite.

    The walk stops one level below `max_depth`, so that an object that contains itself ends too.
    """
    if _FLAT_TYPES.issuperset(map(type, value.values())):
        return len(value), 1, True
    keys = depth = 0
    finite = True
    level: list[Any] = [value]
    while level and depth <= max_depth:
        depth += 1
        deeper: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                keys += len(container)
                container = container.values()
            for inner in container:
                if type(inner) is str:
                    continue
                if isinstance(inner, _CONTAINERS):
                    deeper.append(inner)
                elif isinstance(inner, float) and not isfinite(inner):
                    finite = False
        level = deeper
    return keys, depth, finite


def _refuse_repeated_keys(data: bytes) -> None:
    found: list[str | None] = []
    json.loads(
        data, object_pairs_hook=lambda pairs: found.append(find_duplicate(key for key, _ in pairs))
    )
    repeated = next((name for name in found if name is not None), None)
    if repeated is not None:
        raise JsonProblem(
            f"repeats the key {repeated!r} in one object",
            offset=_find_repeated_key(data),
            hint="keep one of them: the intended value is ambiguous",
        )


def _explain_parse_error(data: bytes, complaint: str, max_depth: int) -> JsonProblem:
    """Turn the message of the parser into one with a position and a fix."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return JsonProblem(
            f"is not UTF-8: byte 0x{data[error.start]:02x}",
            offset=error.start,
            hint="convert the file to UTF-8, for example with iconv",
            cut_off="end of data" in error.reason,
        )
    text, offset = complaint, 0
    if found := _ERROR_POSITION.search(complaint):
        text = complaint[: found.start()]
        # Both are counted from 1.
        for _ in range(int(found[1]) - 1):
            offset = data.find(b"\n", offset) + 1
        offset = max(0, min(offset + int(found[2]) - 1, len(data)))
    # The parser reports the position after the sign of a number.
    offset -= data[offset - 1 : offset] == b"-"
    if constant := _CONSTANT.match(data, offset):
        return JsonProblem(
            f"contains {constant[0].decode()}, which is not JSON", offset=offset, hint=_NULL_HINT
        )
    if "recursion" in text:
        return _build_depth_error(data, max_depth)
    if text.startswith("EOF"):
        return JsonProblem("ends in the middle of an object", offset=len(data), cut_off=True)
    read: Any = None
    if "escape" in text or "surrogate" in text:
        with suppress(ValueError, RecursionError):
            read = json.loads(data)
    if _SURROGATE_CODE_POINT.search(json.dumps(read, ensure_ascii=False)):
        return JsonProblem(
            "contains a lone surrogate",
            offset=offset,
            hint="the text was cut inside a character; replace the surrogate with \\ufffd",
        )
    # The parser does not report half a literal such as `fal` as an early end.
    cut_off = data[offset:].isalpha()
    return JsonProblem(f"is not JSON: {text}", offset=offset, cut_off=cut_off)


def _build_depth_error(data: bytes, max_depth: int) -> JsonProblem:
    offset = next((at for _, at, depth in _scan_json_tokens(data) if depth > max_depth), 0)
    return JsonProblem(
        f"is nested deeper than {max_depth}",
        offset=offset,
        hint="raise ReadLimits(max_depth=…), up to 200, if the nesting is intended",
    )


def _find_repeated_key(data: bytes) -> int:
    """Return the offset of the second of two equal keys."""
    open_objects: list[set[str]] = []
    last: tuple[bytes, int] = (b"", 0)
    for token, at, _ in _scan_json_tokens(data):
        if token in (b"{", b"["):
            open_objects.append(set())
        elif token in (b"}", b"]"):
            open_objects.pop()
        elif token == b":":
            key = json.loads(last[0])
            if key in open_objects[-1]:
                return last[1]
            open_objects[-1].add(key)
        last = (token, at)
    return 0


def _scan_json_tokens(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield strings, numbers and punctuation with their offset and depth."""
    depth = 0
    for match in _TOKEN.finditer(data):
        token = match[0]
        depth += token in (b"{", b"[")
        yield token, match.start(), depth
        depth -= token in (b"}", b"]")


def find_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None: of keys, or of columns."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
