"""Reduces the objects of foreign libraries to plain JSON values, in bounded time.

Objects are recognized by their shape: dataclasses, pydantic models, and objects with a method
`model_dump`, `to_dict` or `dict`. No library is imported. Code of foreign objects runs only here.
"""

import base64
import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from inspect import ismethod
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from assay.errors import AssayError, WireError
from assay.types import Message, describe_error

from .conversion import Dropped, build_depth_error, make_storable

# Far more than a conversation has, and few enough to read in a second.
MAX_VALUES = 500_000
MAX_DEPTH = 100
# A note on a dropped value takes as long as many values.
_NOTE_COST = 20

_PLAIN_TYPES = frozenset({str, bool, int, float, type(None)})
_LISTS = (list, tuple, set, frozenset, deque)
_DUMP_METHODS = ("model_dump", "to_dict", "dict")


def simplify(value: object, where: str, dropped: list[Dropped]) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None.

    Messages of our own are kept. Fields of objects that are None are omitted, and values that JSON
    cannot represent are reported as dropped. Raises `WireError` for values that are too large, too
    deep, contain themselves, or raise when they are read.
    """
    try:
        return make_storable(_Simplifier(dropped, [where]).simplify(value))
    except RecursionError as error:
        raise build_depth_error(where) from error
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        raise _build_read_error(value, where, error) from error


def has_method(value: object, name: str) -> bool:
    """Whether the class of `value` defines the method or property `name`."""
    # The class, not the object: an object may answer to every name, as mocks do.
    return getattr(type(value), name, None) is not None


def read_attribute(value: object, name: str) -> Any:
    """Return an attribute, or the result of the method of this name; None if there is none."""
    try:
        found = getattr(value, name, None)
        # Not any callable: a library may keep a property callable, as a deprecated form of it.
        return found() if ismethod(found) else found
    except (Exception, SystemExit) as error:
        raise _build_read_error(value, name, error) from error


def _build_read_error(value: object, where: str, error: BaseException) -> WireError:
    return WireError(
        f"the {type(value).__name__} cannot be read: {describe_error(error)}",
        where=where,
        hint="return text or plain messages instead of the object",
    )


class _Simplifier:
    """Walks one value. Counts the values it reads, and knows the containers around the current."""

    def __init__(self, dropped: list[Dropped], path: list[str]) -> None:
        self._dropped = dropped
        self._path = path
        self._left = MAX_VALUES
        self._around: set[int] = set()

    def simplify(self, value: Any) -> Any:
        self._count()
        kind = type(value)
        # Exact types first: an abstract class is slow to compare with.
        if kind in _PLAIN_TYPES:
            return value
        if kind is list:
            return self._enter(value, self._simplify_list)
        if kind is dict or isinstance(value, Mapping):
            return self._enter(value, lambda entered: self._simplify_items(entered.items()))
        if isinstance(value, _LISTS):
            return self._enter(value, self._simplify_list)
        return value if isinstance(value, Message) else self._simplify_object(value)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise WireError(
                f"the value has more than {MAX_VALUES:,} parts",
                where=self._path[0],
                hint="return the messages of this sample only",
            )

    def _enter(self, value: Any, read: Any) -> Any:
        if id(value) in self._around:
            raise WireError(
                "the value contains itself",
                where="".join(self._path),
                hint="return the messages without references to their containers",
            )
        if len(self._around) >= MAX_DEPTH:
            raise build_depth_error(self._path[0])
        self._around.add(id(value))
        try:
            return read(value)
        finally:
            self._around.discard(id(value))

    def _simplify_list(self, values: Iterable[Any]) -> list[Any]:
        read = []
        for position, value in enumerate(values):
            self._path.append(f"[{position}]")
            read.append(self.simplify(value))
            self._path.pop()
        return read

    def _simplify_items(self, items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key, value in items:
            self._count()
            if not isinstance(key, str):
                # JSON has string keys only; numbers are the one kind that reads the same as text.
                if type(key) not in (int, float, bool):
                    self._drop(f"a key of type {type(key).__name__}; left out")
                    continue
                key = str(key)
            self._path.append(f".{key[:80]}")
            read[str.__str__(key)] = self.simplify(value)
            self._path.pop()
        return read

    def _simplify_object(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return self.simplify(value.value)
        for plain in (str, int, float):
            if isinstance(value, plain):
                return plain.__str__(value) if plain is str else plain(value)
        if isinstance(value, date | time):
            return value.isoformat().replace("+00:00", "Z")
        if isinstance(value, UUID | Decimal | PurePath):
            return str(value)
        if isinstance(value, bytes | bytearray):
            return base64.b64encode(value).decode()
        if getattr(type(value), "ndim", None) is not None and has_method(value, "item"):
            # A number of an array library; larger arrays are not an answer.
            return self.simplify(value.item())
        fields = self._read_fields(value)
        if fields is None:
            self._drop(f"a value of type {type(value).__name__}; left out")
            return None
        return self._enter(value, lambda _: self._simplify_items(fields.items()))

    def _read_fields(self, value: Any) -> dict[Any, Any] | None:
        found: Any
        if isinstance(value, type):
            return None
        if dataclasses.is_dataclass(value):
            names = [each.name for each in dataclasses.fields(value)]
            found = {name: getattr(value, name) for name in names if not name.startswith("_")}
        elif isinstance(value, BaseModel):
            # Not `model_dump`, which warns about the unchecked values of SDK objects.
            fields = type(value).model_fields
            names = [name for name, field in fields.items() if not field.exclude]
            found = {name: getattr(value, name, None) for name in names}
            found |= value.__pydantic_extra__ or {}
        else:
            method = next((name for name in _DUMP_METHODS if has_method(value, name)), None)
            found = None if method is None else getattr(value, method)()
            if not isinstance(found, Mapping):
                return None
        return {name: inner for name, inner in found.items() if inner is not None}

    def _drop(self, what: str) -> None:
        self._left -= _NOTE_COST
        self._dropped.append(Dropped("".join(self._path), what))
