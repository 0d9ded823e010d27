"""Rewords pydantic's errors for the author of a file, with suggestions."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .file_problems import ValuePath, quote_value, suggest_name
from .yaml_values import is_number

_WRONG_TYPE_PHRASES = {
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

ModelProblem = tuple[ValuePath, str, str | None]
"""A path, a message and a hint."""


def find_model_problems(error: ValidationError, model: type[BaseModel]) -> Iterator[ModelProblem]:
    """Yield every problem of the values that `model` refused."""
    found = error.errors(include_url=False)
    # Pydantic appends "[key]" when the key of a mapping, not its value, is wrong.
    places = [each["loc"][:-1] if each["loc"][-1:] == ("[key]",) else each["loc"] for each in found]
    for each, place in zip(found, places, strict=True):
        end = len(place)
        nested = any(other[:end] == place and len(other) > end for other in places)
        # A list whose members were refused is also reported as too short, which misleads.
        if each["type"] != "too_short" or not nested:
            yield place, *_describe_model_error(each, place, model)


def _describe_model_error(
    found: ErrorDetails, place: ValuePath, model: type[BaseModel]
) -> tuple[str, str | None]:
    kind, given, about = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown field", suggest_name(str(place[-1]), _list_known_fields(model, place))
    if kind == "missing":
        return "the field is missing", None
    if kind in _WRONG_TYPE_PHRASES:
        return f"the value is {quote_value(given)}, {_WRONG_TYPE_PHRASES[kind]}", _suggest_quoting(
            kind, given
        )
    if kind == "literal_error":
        return f"{quote_value(given)} is not {about['expected']}", None
    if kind == "unknown_type":
        hint = suggest_name(str(about["named"]), about["known"])
        return f"`type` is {quote_value(about['named'])}, which is not a known type", hint
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"the value is {quote_value(given)}: {found['msg']}", None
    if kind == "value_error":
        return str(about["error"]), None
    return found["msg"], None


def _suggest_quoting(kind: str, given: object) -> str | None:
    if kind == "string_type" and isinstance(given, int | float):
        return "quote the value"
    if not isinstance(given, str):
        return None
    number = kind in ("int_type", "float_type") and is_number(given)
    if number or (kind == "bool_type" and given.lower() in ("true", "false", "yes", "no")):
        return "remove the quotes"
    return None


def _list_known_fields(model: type[BaseModel], place: ValuePath) -> list[str]:
    # Walks the type annotations down to the parent of `place`; unions give several parents.
    around: list[Any] = [model]
    for part in place[:-1]:
        around = [inner for each in around for inner in _find_inner_types(each, part)]
    names: dict[str, None] = {}
    for kind in (member for each in around for member in _expand_union(each)):
        # A model that keeps unknown fields cannot have refused one.
        if _is_model(kind) and kind.model_config.get("extra") != "allow":
            names |= {field.alias or name: None for name, field in kind.model_fields.items()}
    return list(names)


def _find_inner_types(annotation: Any, part: str | int) -> Iterator[Any]:
    for kind in _expand_union(annotation):
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


def _expand_union(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _expand_union(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _expand_union(member)
    else:
        yield annotation
