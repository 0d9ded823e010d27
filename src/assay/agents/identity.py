"""The identity of callables: their own `identity`, else source and parameters.

It is equal in every process, and a part of the fingerprint of a run.

Values are digested, never written: they may be secrets. A digest of 32 bits distinguishes values
and is too short to recover a key. Values with a secret's name, or that look like a key, are left
out: a weak password could be guessed by its digest, and results do not depend on keys.
"""

import dis
import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import UUID
from weakref import ref

from pydantic import BaseModel

from assay.providers import Redactor
from assay.types import Endpoint, describe_endpoint, stable_id

Description = str | dict[str, Any]

# Enough for any configuration. A callable that contains a dataset is described by its size.
MAX_DESCRIBED_VALUES = 50_000

_MAX_DESCRIBED_DEPTH = 8
_SECRET_PARAMETER = re.compile(
    r"api_?key|secret|passw|credential|bearer|cookie|authori[sz]ation"
    r"|(^|\.)_*token$|(access|api|auth|hf|refresh|session)_?token",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"//[^/\s]*@")
_KEY_REDACTOR = Redactor(())
_TEXT_TYPES = (PurePath, Decimal, date, timedelta, UUID, range)
# As globals these depend on the machine or the moment of the import.
_VARYING_TYPES = (PurePath, date, UUID)


def identify(value: object) -> str:
    """Return a short text that differs between callables that may behave differently."""
    return stable_id(describe_callable(value))


def describe_callable(value: object) -> Description:
    """Return the name of a callable, and its `identity` if it has one.

    Otherwise its name, a digest of its source, and its parameters: two functions of one factory
    with other parameters are not the same.
    Parameters are the arguments of a `partial`, the closure of a function, and the attributes of
    an instance or of a method's instance. `describe_globals` describes the globals that it reads.
    """
    # The first description of an object is kept: a scorer that counts its calls or collects its
    # inputs must have the same fingerprint when its run is resumed.
    reference, description = _descriptions.get(id(value), (None, ""))
    if reference is not None and reference() is value:
        return description
    identity = getattr(value, "identity", None)
    if isinstance(identity, str):
        return f"{_format_type_name(value)} {identity}"
    description = _Describer().describe(value)
    with suppress(TypeError):  # an instance with `__slots__` only has no weak references
        key = id(value)
        # Ids are reused: without the callback a later object would inherit the description.
        _descriptions[key] = ref(value, lambda _: _descriptions.pop(key, None)), description
    return description


def describe_globals(value: object) -> dict[str, Description]:
    """Return digests of the constants, functions and classes of its module that a callable uses.

    By name, also those that the functions among them use. Left out are other objects, such as
    clients, paths and times, and names that a function assigns itself, such as counters.
    """
    while isinstance(value, partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, FunctionType):
        call = getattr(type(value), "__call__", None)  # noqa: B004  # the function itself is needed
        value = getattr(value, "__func__", call)
    if not isinstance(value, FunctionType):
        return {}
    describer, found = _Describer(), dict[str, Description]()
    codes, assigned, module = [value.__code__], set[str](), value.__globals__
    # As `format_plain` writes it. A run can be resumed with the code in another folder.
    folder = ascii(os.path.dirname(os.path.abspath(value.__code__.co_filename)))[1:-1]
    for code in codes:  # grows while it is read
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        for step in dis.get_instructions(code):
            if step.opname == "STORE_GLOBAL":
                assigned.add(step.argval)
            name = step.argval
            if step.opname != "LOAD_GLOBAL" or name in found or name not in module:
                continue
            used = module[name]
            if callable(used):
                # An imported callable is not looked into: its package has a version of its own.
                is_own = getattr(used, "__module__", None) == value.__module__
            else:
                text = _Describer().format_plain(used)
                has_folder = text is not None and folder in text and folder != os.sep
                is_own = not (text is None or has_folder or name.startswith("__"))
            if is_own and not isinstance(used, _VARYING_TYPES):
                found[name] = describer.describe_parameter(name, used)
                if isinstance(used, FunctionType) and used.__globals__ is module:
                    codes.append(used.__code__)
    return {name: found[name] for name in sorted(found.keys() - assigned)}


_descriptions: "dict[int, tuple[ref[object], Description]]" = {}


class _Describer:
    """Walks the values that a callable contains, within bounds."""

    # `repr` of arbitrary objects is never used: it may show an address in memory, which differs in
    # each process.

    def __init__(self) -> None:
        self._left = MAX_DESCRIBED_VALUES
        self._depth = 0
        self._skipped = 0
        self._names: dict[int, str] = {}

    def describe(self, value: Any) -> Description:
        """Describe a callable."""
        self._left -= 1
        if self._depth > _MAX_DESCRIBED_DEPTH or self._left <= 0:
            return self._format_skipped(_format_type_name(value))
        self._depth += 1
        try:
            if isinstance(value, partial):
                numbered = {str(index): each for index, each in enumerate(value.args)}
                return self._add_parameters(
                    self.describe(value.func), {**numbered, **value.keywords}
                )
            wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
            if wrapped is not None and not isinstance(value, type):
                # A wrapper is described by the function it wraps. Its own callables are mechanism.
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
        """Return the name of a callable and a digest of its source, if that can be read."""
        function = value if hasattr(value, "__qualname__") else type(value)
        # Finding the source of a class is slow, and a model has a hundred layers of one class.
        if id(function) not in self._names:
            name = f"{function.__module__}.{function.__qualname__}"
            with suppress(OSError, TypeError, SyntaxError):  # code without a file has no source
                source = inspect.getsource(function)
                name += f" {hashlib.sha256(source.encode()).hexdigest()[:12]}"
            self._names[id(function)] = name
        return self._names[id(function)]

    def _add_parameters(
        self, function: Description, parameters: Mapping[str, object]
    ) -> Description:
        if not parameters:
            return function
        given = {
            name: self.describe_parameter(name, parameters[name]) for name in sorted(parameters)
        }
        return {"function": function, "with": given}

    def describe_parameter(self, name: str, value: object) -> Description:
        if _is_secret(name):
            return "withheld"
        if callable(value):
            return self.describe(value)
        text = self.format_plain(value)
        if text is None:
            return _format_type_name(value)
        return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]

    def format_plain(self, value: object) -> str | None:
        """Format equal plain values equally; None for any other value."""
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, Enum):
            return f"{_format_type_name(value)}.{value.name}"
        if isinstance(value, int):
            return int.__format__(value, "#x")  # decimal conversion refuses very long integers
        # Subclasses, such as those of numpy, define their own `repr`.
        for kind in (float, bytes):
            if isinstance(value, kind):
                return kind.__repr__(value)
        if isinstance(value, str):
            return ascii(_URL_USER.sub("//", _KEY_REDACTOR.clean(value)))
        if isinstance(value, re.Pattern):
            return f"{self.format_plain(value.pattern)} {value.flags}"
        if isinstance(value, _TEXT_TYPES):
            return f"{_format_type_name(value)} {value}"
        container = _unpack_container(value)
        return None if container is None else self._format_container(*container)

    def _format_container(self, kind: str, items: "_Container") -> str:
        if self._depth > _MAX_DESCRIBED_DEPTH or len(items) > self._left:
            return self._format_skipped(f"{kind} of {len(items)}")
        self._left -= len(items)
        self._depth += 1
        skipped = self._skipped
        try:
            if isinstance(items, dict):
                pairs = ((name, each) for name, each in items.items() if not _is_secret(name))
                texts = sorted(
                    f"{self._format_element(key)}: {self._format_element(each)}"
                    for key, each in pairs
                )
            else:
                texts = [self._format_element(each) for each in items]
        finally:
            self._depth -= 1
        if not isinstance(items, Set):
            return f"{kind}({', '.join(texts)})"
        # Sets are ordered differently in each process: after a partial walk, the described part
        # differs as well, so that only the size is left.
        if self._skipped > skipped:
            self._left = 0
            return self._format_skipped(f"{kind} of {len(items)}")
        return f"{kind}({', '.join(sorted(texts))})"

    def _format_skipped(self, what: str) -> str:
        self._skipped += 1
        return f"{what}, not looked into"

    def _format_element(self, value: object) -> str:
        if callable(value):
            return json.dumps(self.describe(value), sort_keys=True)
        return self.format_plain(value) or _format_type_name(value)


_Container = dict[Any, Any] | list[Any] | tuple[Any, ...] | Set[Any]


def _unpack_container(value: object) -> tuple[str, _Container] | None:
    """Return the kind and the items of a container; None for any other value."""
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


def _collect_parameters(value: Any) -> dict[str, object]:
    if isinstance(value, MethodType):
        found, instance = _collect_closure(value.__func__), value.__self__
        if isinstance(instance, type):
            return {**found, "self": instance}
        attributes = _collect_attributes(instance)
        own = {f"self.{name}": attributes[name] for name in attributes}
        return {**found, "self": type(instance), **own}
    if isinstance(value, BuiltinMethodType):
        return (
            {} if isinstance(value.__self__, ModuleType | type | None) else {"self": value.__self__}
        )
    if isinstance(value, FunctionType):
        # A function that was renamed on purpose is identified by that name alone.
        return _collect_closure(value) if value.__qualname__ == value.__code__.co_qualname else {}
    return {} if hasattr(value, "__qualname__") else _collect_attributes(value)


def _collect_closure(function: Any) -> dict[str, object]:
    """Collect the closure of a function, and the defaults of a nested one."""
    found: dict[str, object] = {}
    if not isinstance(function, FunctionType):
        return found
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # `__class__` is the implicit cell of `super()`.
        if name != "__class__":
            with suppress(ValueError):  # the cell is still empty
                found[name] = cell.cell_contents
    if "<" in function.__qualname__:
        # Defaults of a top-level function are in its source; a loop can vary those of a lambda.
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
