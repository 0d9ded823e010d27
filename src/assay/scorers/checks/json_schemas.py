"""JSON Schema for untrusted files: no address is fetched, and patterns run in RE2."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import PlainValidator

from assay.errors import MissingExtra
from assay.types import InvalidValue, ValuePath, quote_value

from .findings import cut_quote
from .patterns import Pattern, compile_pattern

_SUBSCHEMAS_BY_NAME = ("$defs", "definitions", "properties", "dependentSchemas")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# `$id` and `$schema` change how references resolve. The `unevaluated*` keywords of jsonschema
# match `patternProperties` with Python's `re`.
_UNSUPPORTED_KEYWORDS = ("unevaluatedProperties", "unevaluatedItems", "$id", "$schema")
# The values of these keywords are data, even where they look like schemas.
_DATA_KEYWORDS = ("const", "enum", "default", "examples", "dependentRequired", "required", "type")


@dataclass(frozen=True)
class Schema:
    """A validated schema."""

    _errors: Callable[[Any], Iterator[Any]] = field(repr=False)

    def problem(self, value: Any) -> str | None:
        """Return the first violation in `value` with its path, or None.

        Raises `RecursionError` for a value that is nested too deep.
        """
        error = next(self._errors(value), None)
        if error is None:
            return None
        return f"{error.json_path}: {cut_quote(error.message, 200)}"


def compile_schema(given: Any) -> Schema:
    """Compile a JSON Schema (2020-12) of a check file. Raises `InvalidValue` for an invalid one."""
    if find_spec("jsonschema") is None:
        raise MissingExtra.build("checks", by="`json_schema` in a check", package="jsonschema")
    import jsonschema
    from referencing import Registry

    if not isinstance(given, bool | dict):
        raise InvalidValue(f"the value is {quote_value(given)}, not a mapping")
    try:
        jsonschema.Draft202012Validator.check_schema(given)
    except jsonschema.SchemaError as error:
        message = f"the JSON Schema is invalid: {cut_quote(error.message, 160)}"
        raise InvalidValue(message, place=tuple(error.absolute_path)) from None
    patterns: dict[str, Pattern] = {}
    _compile_patterns(given, (), given, patterns)
    extend: Any = jsonschema.validators.extend  # its stub is not typed
    validator = extend(jsonschema.Draft202012Validator, _build_safe_keywords(patterns))
    # An empty registry: the default one would fetch remote references.
    return Schema(validator(given, registry=Registry()).iter_errors)


SchemaMapping = Annotated[Schema, PlainValidator(compile_schema)]


def _compile_patterns(
    schema: Any, place: ValuePath, whole: Any, patterns: dict[str, Pattern]
) -> None:
    """Add every pattern of a schema. Raises `InvalidValue` for external references."""
    for key, below in schema.items() if isinstance(schema, dict) else ():
        here = (*place, key)
        if key in _UNSUPPORTED_KEYWORDS:
            message = f"`{key}` is not supported in a check"
            raise InvalidValue(message, hint="remove the keyword", place=here)
        if key in _REFERENCES:
            _check_reference(below, here, whole)
        elif key == "pattern":
            _compile_pattern_at(below, here, patterns)
        elif key == "patternProperties" or key in _SUBSCHEMAS_BY_NAME:
            for name, inner in below.items():
                if key == "patternProperties":
                    _compile_pattern_at(name, (*here, name), patterns)
                _compile_patterns(inner, (*here, name), whole, patterns)
        elif key not in _DATA_KEYWORDS and isinstance(below, list):
            for position, inner in enumerate(below):
                _compile_patterns(inner, (*here, position), whole, patterns)
        elif key not in _DATA_KEYWORDS:
            _compile_patterns(below, here, whole, patterns)


def _compile_pattern_at(source: Any, place: ValuePath, patterns: dict[str, Pattern]) -> None:
    try:
        patterns[source] = compile_pattern(source)
    except InvalidValue as error:
        raise InvalidValue(str(error), hint=error.hint, place=place) from None


def _check_reference(reference: Any, place: ValuePath, whole: Any) -> None:
    first, *parts = str(reference).split("/")
    if first != "#":
        raise InvalidValue(
            f"{quote_value(reference)} points outside the schema; references are not fetched",
            hint="use #/$defs/NAME",
            place=place,
        )
    target = whole
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, dict) or name not in target:
            message = f"{quote_value(reference)} does not exist in the schema"
            raise InvalidValue(message, place=place)
        target = target[name]


def _build_safe_keywords(patterns: dict[str, Pattern]) -> dict[str, Any]:
    """Replace the keywords that take more than linear time in jsonschema."""
    # Its patterns use `re`, which backtracks: a pattern and a text can be chosen so that a match
    # takes hours. Its `uniqueItems` compares every two objects of a list.
    from jsonschema import ValidationError

    def pattern(validator: Any, source: str, value: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not patterns[source].search(value):
            yield ValidationError(f"{value!r} does not match {source!r}")

    def by_pattern(
        validator: Any, schemas: dict[str, Any], value: Any, schema: Any
    ) -> Iterator[ValidationError]:
        for source, below in schemas.items() if isinstance(value, dict) else ():
            for key, member in value.items():
                if patterns[source].search(key):
                    yield from validator.descend(member, below, path=key, schema_path=source)

    def additional(
        validator: Any, below: Any, value: Any, schema: Any
    ) -> Iterator[ValidationError]:
        known = schema.get("properties", {})
        shapes = [patterns[source] for source in schema.get("patternProperties", {})]
        for key, member in value.items() if isinstance(value, dict) else ():
            if key in known or any(shape.search(key) for shape in shapes):
                continue
            if below is False:
                yield ValidationError(f"{key!r} is not allowed here")
            else:
                yield from validator.descend(member, below, path=key)

    def unique(validator: Any, wanted: bool, value: Any, schema: Any) -> Iterator[ValidationError]:
        if not wanted or not isinstance(value, list):
            return
        seen = set()
        for at, member in enumerate(value):
            frozen = _freeze_json(member)
            if frozen in seen:
                yield ValidationError(f"item {at} occurs twice: {member!r}")
                return
            seen.add(frozen)

    return {
        "pattern": pattern,
        "patternProperties": by_pattern,
        "additionalProperties": additional,
        "uniqueItems": unique,
    }


def _freeze_json(value: Any) -> Hashable:
    """Return a value to hash that is equal for equal JSON: 1 is 1.0 and is not true."""
    if isinstance(value, dict):
        return frozenset((key, _freeze_json(member)) for key, member in value.items())
    if isinstance(value, list):
        return tuple(map(_freeze_json, value))
    return (bool, value) if isinstance(value, bool) else value
