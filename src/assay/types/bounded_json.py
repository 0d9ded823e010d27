"""JSON within a size limit: converts any value to plain JSON values in bounded work."""

import json
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time
from enum import Enum
from math import isfinite, isnan
from numbers import Integral, Real
from typing import Any

from pydantic import BaseModel

from .field_types import replace_lone_surrogates

# Deeper values are treated as too large. The limit also ends reference cycles.
_MAX_JSON_NESTING = 64


@dataclass(frozen=True)
class PlainJson:
    """A value that JSON can represent."""

    value: Any
    changed: bool
    """Whether a part was not representable and was replaced by its nearest equivalent."""


def to_plain(value: Any, *, room: int) -> PlainJson | None:
    """Return `value` as plain JSON values, or None when it needs more than `room` characters.

    Never raises. The work is bounded by `room`, whatever the size of `value`.
    """
    conversion = _BoundedConverter(room)
    try:
        return PlainJson(conversion.convert(value, depth=0), conversion.changed)
    except _RoomExceeded:
        return None


def write_compact(value: Any) -> str:
    """Return JSON text without spaces and without escaping non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def count_utf16_units(text: str) -> int:
    """Return the length in UTF-16 units, the largest count that any reader may use."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def shorten(text: str, *, room: int) -> str:
    """Return the longest prefix of `text` that fits `room` as a JSON string ending in "…"."""
    # Bisected, because escaping makes the width of a prefix unpredictable.
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if count_utf16_units(write_compact(replace_lone_surrogates(text[:middle]) + "…")) <= room:
            low = middle
        else:
            high = middle - 1
    return replace_lone_surrogates(text[:low]) + "…"


class _RoomExceeded(Exception):
    """The value needs more characters than the limit."""


class _BoundedConverter:
    """Converts a value, charging each part the minimum it can take as JSON."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.changed = False

    def convert(self, value: Any, *, depth: int) -> Any:
        if depth > _MAX_JSON_NESTING:
            raise _RoomExceeded
        if value is None or isinstance(value, bool):
            self._charge_room(4)  # null, true; false takes five, but the charge is a lower bound
            return value
        if isinstance(value, Enum):
            self.changed |= not isinstance(value, str | int)
            return self.convert(value.value, depth=depth + 1)
        if isinstance(value, str):
            self._charge_room(len(value) + 2)
            # `str.__str__`, because a subclass may override it and return anything.
            text = replace_lone_surrogates(str.__str__(value))
            self.changed |= text != value
            return text
        if isinstance(value, int):
            # Charged before formatting: Python refuses to format thousands of digits.
            self._charge_room(1 + max(value.bit_length() - 1, 0) * 3 // 10)
            return int(value)
        if isinstance(value, float):
            self._charge_room(1)
            self.changed |= not isfinite(value)
            unreal = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return float(value) if isfinite(value) else unreal
        if isinstance(value, dict):
            return self._convert_object(value, depth)
        if isinstance(value, list | tuple):
            self._charge_room(2 + max(len(value) - 1, 0))
            return [self.convert(item, depth=depth + 1) for item in value]
        self.changed = True
        return self.convert(_approximate_value(value, self._room), depth=depth + 1)

    def _charge_room(self, characters: int) -> None:
        self._room -= characters
        if self._room < 0:
            raise _RoomExceeded

    def _convert_object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._charge_room(2 + max(2 * len(value) - 1, 0))
        plain: dict[str, Any] = {}
        for key, item in value.items():
            name = self.convert(key, depth=depth + 1)
            if not isinstance(name, str):
                self.changed = True
                name = write_compact(name)
            while name in plain:
                # 1 and "1" are two keys here and one in JSON.
                name += "'"
                self.changed = True
            plain[name] = self.convert(item, depth=depth + 1)
        return plain


def _approximate_value(value: Any, room: int) -> Any:
    try:
        if isinstance(value, bytes | bytearray):
            # A character takes at most four bytes, so the cut part would not fit anyway.
            return bytes(value[: 4 * room + 4]).decode("utf-8", "replace")
        if isinstance(value, set | frozenset):
            # Sorted, because the order of a set differs between processes.
            return sorted(value, key=repr) if len(value) <= room else [None] * len(value)
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, Integral | Real):
            # NumPy scalars and the like, which environments return as rewards.
            return int(value) if isinstance(value, Integral) else float(value)
        if isinstance(value, BaseModel):
            return dict(value)
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        return dict(value) if hasattr(value, "keys") else str(value)
    except Exception:
        # The value's own code failed, so only its type is known; `changed` records that.
        return f"<{type(value).__name__}>"
