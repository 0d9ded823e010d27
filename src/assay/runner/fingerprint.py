"""What a callable is, in words that are the same in another process: its source and parameters.

No value is written as it is, for it may be a secret. A digest of 32 bits tells values apart and
is too short to find a key by. What has a secret's name or looks like a key is left out: a password
could be guessed and tried against the digest, and another key gives no other results.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from uuid import UUID
from weakref import ref

from pydantic import BaseModel

from assay.providers import Redactor
from assay.types import Endpoint, describe_endpoint

Description = str | dict[str, Any]

MAX_DESCRIBED_VALUES = 50_000
"""A callable that holds a whole dataset is told by how much of it there is."""

_MAX_DESCRIBED_DEPTH = 8
_SECRET_PARAMETER = re.compile(
    r"api_?key|secret|passw|credential|bearer|cookie|authori[sz]ation"
    r"|(^|\.)_*token$|(access|api|auth|hf|refresh|session)_?token",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"//[^/\s]*@")
_KEY_REDACTOR = Redactor(())
_TEXT_TYPES = (PurePath, Decimal, date, timedelta, UUID, range)


def describe_callable(value: object) -> Description:
    """The name of a callable and a digest of its source; with its parameters, where it has some.

    They are what a `partial` was given, what a function closes over, and the attributes of an
    instance or of a method's instance. What a function reads from its module is not seen.

    An object stays what it was when it was first described: a scorer that counts its calls, or
    collects what it saw, is no other scorer when a run is resumed.
    """
    reference, description = _descriptions.get(id(value), (None, ""))
    if reference is not None and reference() is value:
        return description
    description = _Describer().describe(value)
    with suppress(TypeError):  # an instance with slots alone cannot be referred to like this
        forget = partial(_forget_description, id(value))
        _descriptions[id(value)] = ref(value, forget), description
    return description


_descriptions: "dict[int, tuple[ref[object], Description]]" = {}


def _forget_description(place: int, reference: object) -> None:
    _descriptions.pop(place, None)


class _Describer:
    """Goes through what a callable holds, within bounds.

    Nothing is asked for its `repr`: it may show an address in memory, which differs each time.
    """

    def __init__(self) -> None:
        self._left = MAX_DESCRIBED_VALUES
        self._depth = 0
        self._passed_over = 0
        self._names: dict[int, str] = {}

    def describe(self, value: Any) -> Description:
        """What a callable is."""
        self._left -= 1
        if self._depth > _MAX_DESCRIBED_DEPTH or self._left <= 0:
            return self._format_skipped(_format_type_name(value))
        self._depth += 1
        try:
            if isinstance(value, partial):
                numbered = {str(place): each for place, each in enumerate(value.args)}
                return self._add_parameters(
                    self.describe(value.func), {**numbered, **value.keywords}
                )
            wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
            if wrapped is not None and not isinstance(value, type):
                # It goes by the name of what it wraps. The callables it has are how it does so.
                own = (
                    _collect_closure(value)
                    if isinstance(value, FunctionType)
                    else _collect_attributes(value)
                )
                values = {name: each for name, each in own.items() if not callable(each)}
                return self._add_parameters(self.describe(wrapped), values)
            return self._add_parameters(self._describe_name(value), _collect_parameters(value))
        finally:
            self._depth -= 1

    def _describe_name(self, value: Any) -> str:
        """A callable by its name and a digest of its source, where that can be read."""
        function = value if hasattr(value, "__qualname__") else type(value)
        # Finding the source of a class takes a while, and a model has a hundred layers of one.
        if id(function) not in self._names:
            self._names[id(function)] = _describe_function_source(function)
        return self._names[id(function)]

    def _add_parameters(
        self, function: Description, parameters: Mapping[str, object]
    ) -> Description:
        if not parameters:
            return function
        given = {
            name: self._describe_parameter(name, parameters[name]) for name in sorted(parameters)
        }
        return {"function": function, "with": given}

    def _describe_parameter(self, name: str, value: object) -> Description:
        if _is_secret(name):
            return "withheld"
        if callable(value):
            return self.describe(value)
        text = self._format_plain(value)
        if text is None:
            return _format_type_name(value)
        return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]

    def _format_plain(self, value: object) -> str | None:
        """One spelling for equal plain values; None for any other value."""
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, Enum):
            return f"{_format_type_name(value)}.{value.name}"
        if isinstance(value, int):
            return int.__format__(value, "#x")  # in decimals, a long one is refused
        # Subclasses, such as those of numpy, have a `repr` of their own.
        for kind in (float, bytes):
            if isinstance(value, kind):
                return kind.__repr__(value)
        if isinstance(value, str):
            return ascii(_URL_USER.sub("//", _KEY_REDACTOR.clean(value)))
        if isinstance(value, re.Pattern):
            return f"{self._format_plain(value.pattern)} {value.flags}"
        if isinstance(value, _TEXT_TYPES):
            return f"{_format_type_name(value)} {value}"
        held = _unpack_container(value)
        return None if held is None else self._format_container(*held)

    def _format_container(self, kind: str, held: "_Container") -> str:
        if self._depth > _MAX_DESCRIBED_DEPTH or len(held) > self._left:
            return self._format_skipped(f"{kind} of {len(held)}")
        self._left -= len(held)
        self._depth += 1
        passed_over = self._passed_over
        try:
            if isinstance(held, dict):
                pairs = ((name, each) for name, each in held.items() if not _is_secret(name))
                texts = sorted(
                    f"{self._format_element(key)}: {self._format_element(each)}"
                    for key, each in pairs
                )
            else:
                texts = [self._format_element(each) for each in held]
        finally:
            self._depth -= 1
        if not isinstance(held, Set):
            return f"{kind}({', '.join(texts)})"
        # The order of a set is another one in each process, and so is what of it was read.
        if self._passed_over > passed_over:
            self._left = 0
            return self._format_skipped(f"{kind} of {len(held)}")
        return f"{kind}({', '.join(sorted(texts))})"

    def _format_skipped(self, what: str) -> str:
        self._passed_over += 1
        return f"{what}, not looked into"

    def _format_element(self, value: object) -> str:
        if callable(value):
            return json.dumps(self.describe(value), sort_keys=True)
        return self._format_plain(value) or _format_type_name(value)


_Container = dict[Any, Any] | list[Any] | tuple[Any, ...] | Set[Any]


def _unpack_container(value: object) -> tuple[str, _Container] | None:
    """What a plain value of several parts holds, and what kind it is of."""
    if isinstance(value, dict):
        return "dict", value
    if isinstance(value, list | tuple):
        return "list", value
    if isinstance(value, set | frozenset):
        return "set", value
    if isinstance(value, Endpoint):
        return "Endpoint", describe_endpoint(value)
    if isinstance(value, BaseModel):
        return _format_type_name(value), {**vars(value), **(value.model_extra or {})}
    if is_dataclass(value):
        return _format_type_name(value), {
            each.name: getattr(value, each.name, None) for each in fields(value)
        }
    return None


def _is_secret(name: object) -> bool:
    return isinstance(name, str) and _SECRET_PARAMETER.search(name) is not None


def _format_type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _describe_function_source(function: Any) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError, SyntaxError):
        return name
    return f"{name} {hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _collect_parameters(value: Any) -> dict[str, object]:
    if isinstance(value, MethodType):
        return {**_collect_closure(value.__func__), **_collect_instance_attributes(value.__self__)}
    if isinstance(value, BuiltinMethodType):
        return (
            {} if isinstance(value.__self__, ModuleType | type | None) else {"self": value.__self__}
        )
    if isinstance(value, FunctionType):
        # One that was given another name than its own says with it all there is to say.
        return _collect_closure(value) if value.__qualname__ == value.__code__.co_qualname else {}
    return {} if hasattr(value, "__qualname__") else _collect_attributes(value)


def _collect_instance_attributes(instance: object) -> dict[str, object]:
    """What a method is called on."""
    if isinstance(instance, type):
        return {"self": instance}
    attributes = _collect_attributes(instance)
    return {"self": type(instance), **{f"self.{name}": attributes[name] for name in attributes}}


def _collect_closure(function: Any) -> dict[str, object]:
    """What a function has from where it was made."""
    found: dict[str, object] = {}
    if not isinstance(function, FunctionType):
        return found
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # `__class__` is how a method says super().
        if name != "__class__":
            with suppress(ValueError):  # it has no value yet
                found[name] = cell.cell_contents
    if "<" in function.__qualname__:
        # Those of a function of a module stand in its source; a loop can give a lambda others.
        found |= {
            each.name: each.default
            for each in inspect.signature(function).parameters.values()
            if each.default is not inspect.Parameter.empty
        }
    return found


def _collect_attributes(instance: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind in type(instance).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never set
                    found[name] = member.__get__(instance)
    found |= getattr(instance, "__dict__", {})
    return {name: value for name, value in found.items() if not name.startswith("__")}
