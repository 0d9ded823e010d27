"""Validates files with pydantic models, and rewords its errors for the author of a file."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from assay.errors import ConfigError

from .file_problems import (
    InvalidValue,
    ValuePath,
    build_problems_error,
    find_close_name,
    quote_value,
    suggest_name,
)
from .guarded_yaml import YamlDocument
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

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate_document(
    document: YamlDocument,
    model: type[ModelT],
    *,
    kind: type[ConfigError] = ConfigError,
    context: Mapping[str, Any] | None = None,
) -> ModelT:
    """Validate the data of a file. Raises `kind`, which lists every problem with its position."""
    try:
        return model.model_validate(document.value, context=context)
    except ValidationError as error:
        found = error.errors(include_url=False)
    problems = []
    for each in found:
        # A list whose members were refused is also reported as too short, which misleads.
        loc = each["loc"]
        if each["type"] == "too_short" and any(
            other["loc"][: len(loc)] == loc and other is not each for other in found
        ):
            continue
        place = _find_place(each, document.value)
        problems.append(document.problem(place, *_describe_model_error(each, place, model)))
    raise build_problems_error(kind, problems)


def _find_place(found: ErrorDetails, value: Any) -> ValuePath:
    """Return the path of the wrong value as the author of the file wrote it."""
    error = found.get("ctx", {}).get("error")
    place: ValuePath = ()
    for part in (*found["loc"], *(error.place if isinstance(error, InvalidValue) else ())):
        # A validator may expand a short form such as `tool: a` to `tools: [a]`: the parts of the
        # path that it adds do not exist in the file. Pydantic itself appends "[key]" when the key
        # of a mapping, not its value, is wrong.
        if isinstance(value, Mapping) and isinstance(part, str) and part != "[key]":
            place, value = (*place, part), value.get(part)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            place, value = (*place, part), value[part] if part < len(value) else None
    return place


def _describe_model_error(
    found: ErrorDetails, place: ValuePath, model: type[BaseModel]
) -> tuple[str, str | None]:
    kind, given, about = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown field", suggest_name(str(place[-1]), _list_known_fields(model, place))
    if kind == "missing":
        return "the field is missing", None
    if not place and kind in ("model_type", "model_attributes_type"):
        required = [name for name, field in model.model_fields.items() if field.is_required()]
        hint = f"the required fields are {', '.join(required)}"
        return f"the file is {quote_value(given)}, not a mapping", hint
    if kind in _WRONG_TYPE_PHRASES:
        message = f"the value is {quote_value(given)}, {_WRONG_TYPE_PHRASES[kind]}"
        if kind == "string_type" and isinstance(given, int | float):
            return message, "quote the value"
        text = given if isinstance(given, str) else ""
        flag = kind == "bool_type" and text.lower() in ("true", "false", "yes", "no")
        quoted = flag or (kind in ("int_type", "float_type") and is_number(text))
        return message, "remove the quotes" if quoted else None
    if kind == "literal_error":
        close = find_close_name(str(given), re.findall("'([^']*)'", about["expected"]))
        if close is not None:
            return f"unknown value {quote_value(given)}", f"did you mean {close!r}?"
        return f"{quote_value(given)} is not {about['expected']}", None
    if kind == "unknown_type":
        hint = suggest_name(str(about["named"]), about["known"])
        return f"`type` is {quote_value(about['named'])}, which is not a known type", hint
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"the value is {quote_value(given)}: {found['msg']}", None
    if kind in ("string_too_short", "too_short") and about["min_length"] == 1:
        name = {"String": "text", "Dictionary": "mapping"}.get(about.get("field_type", "String"))
        return f"the {name or 'list'} is empty", None
    if kind == "value_error":
        return str(about["error"]), getattr(about["error"], "hint", None)
    return found["msg"], None


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
