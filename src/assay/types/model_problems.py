"""Pydantic's complaints in the words of a file: what stands there, what may, what was meant."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .file_problems import Place, near_miss, shown
from .yaml_values import is_number

_KINDS = {
    "bool_parsing": "neither true nor false",
    "bool_type": "neither true nor false",
    "dict_type": "not a mapping",
    "float_parsing": "not a number",
    "float_type": "not a number",
    "int_from_float": "not a whole number",
    "int_parsing": "not a whole number",
    "int_type": "not a whole number",
    "mapping_type": "not a mapping",
    "model_type": "not a mapping",
    "model_attributes_type": "not a mapping",
    "string_type": "not text",
    "tuple_type": "not a list",
}
"""What a value of the wrong type is not."""

Complaint = tuple[Place, str, str | None]
"""A place, what is wrong there, and a hint."""


def complaints(error: ValidationError, model: type[BaseModel]) -> Iterator[Complaint]:
    """Everything that is wrong with the values that `model` was to be made of."""
    found = error.errors(include_url=False)
    places = [_place(each) for each in found]
    for each, place in zip(found, places, strict=True):
        # A list whose members were refused is not too short on top of that.
        if each["type"] != "too_short" or not _any_inside(place, places):
            yield place, *_worded(each, place, model)


def _any_inside(place: Place, places: list[Place]) -> bool:
    end = len(place)
    return any(other[:end] == place and len(other) > end for other in places)


def _place(found: ErrorDetails) -> Place:
    """Where it is, without pydantic's own mark for the key of a mapping."""
    loc = found["loc"]
    return loc[:-1] if loc[-1:] == ("[key]",) else loc


def _worded(found: ErrorDetails, place: Place, model: type[BaseModel]) -> tuple[str, str | None]:
    kind, given, about = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return "is not a field here", near_miss(str(place[-1]), _fields(model, place))
    if kind == "missing":
        return "is missing", None
    if kind in _KINDS:
        return f"is {shown(given)}, {_KINDS[kind]}", _quoting(kind, given)
    if kind == "literal_error":
        return f"{shown(given)} is not {about['expected']}", None
    if kind == "unknown_type":
        hint = near_miss(str(about["named"]), about["known"])
        return f"`type` is {shown(about['named'])}, which is no kind known", hint
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"is {shown(given)}: {found['msg']}", None
    if kind == "value_error":
        return str(about["error"]), None
    return found["msg"], None


def _quoting(kind: str, given: object) -> str | None:
    if kind == "string_type" and isinstance(given, int | float):
        return "put it in quotes"
    if not isinstance(given, str):
        return None
    number = kind in ("int_type", "float_type") and is_number(given)
    if number or (kind == "bool_type" and given.lower() in ("true", "false", "yes", "no")):
        return "take it out of its quotes"
    return None


def _fields(model: type[BaseModel], place: Place) -> list[str]:
    """The fields of whatever stands around `place`."""
    around: list[Any] = [model]
    for part in place[:-1]:
        around = [inner for each in around for inner in _inside(each, part)]
    names: dict[str, None] = {}
    for each in around:
        names.update(dict.fromkeys(_names(each)))
    return list(names)


def _names(annotation: Any) -> Iterator[str]:
    for kind in _options(annotation):
        # A type that keeps unknown fields has not complained about one.
        if _is_model(kind) and kind.model_config.get("extra") != "allow":
            for name, field in kind.model_fields.items():
                yield field.alias or name


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """What the type says about the value under a key or at a position."""
    for kind in _options(annotation):
        origin, arguments = get_origin(kind), get_args(kind)
        if _is_model(kind):
            for name, field in kind.model_fields.items():
                if part in (name, field.alias):
                    yield field.annotation
        elif isinstance(part, int) and origin in (tuple, list):
            yield arguments[0]
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            yield arguments[1]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _options(annotation: Any) -> Iterator[Any]:
    """The members of a union, without their annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _options(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _options(member)
    else:
        yield annotation
