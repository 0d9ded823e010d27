"""JSON Schema for untrusted files: no address is fetched, and patterns run in RE2."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from assay.errors import MissingExtra
from assay.types import quote_value

from .patterns import Pattern, compile_pattern
from .yaml_node import Node, shorten_text

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
        return f"{error.json_path}: {shorten_text(error.message, 200)}"


def compile_schema(given: Node) -> Schema:
    """Compile a JSON Schema (2020-12) of a check file. Raises `ConfigError` for an invalid one."""
    if find_spec("jsonschema") is None:
        raise MissingExtra.needed("checks", by="`json_schema` in a check", package="jsonschema")
    import jsonschema
    from referencing import Registry

    if not isinstance(given.value, bool):
        given.mapping()
    try:
        jsonschema.Draft202012Validator.check_schema(given.value)
    except jsonschema.SchemaError as error:
        place = given
        for part in error.absolute_path:
            place = place.at(part)
        raise place.wrong(
            f"the JSON Schema is invalid: {shorten_text(error.message, 160)}"
        ) from None
    patterns = {pattern.source: pattern for pattern in _compile_patterns(given, given.value)}
    extend: Any = jsonschema.validators.extend  # its stub is not typed
    validator = extend(jsonschema.Draft202012Validator, _build_safe_keywords(patterns))
    # An empty registry: the default one would fetch remote references.
    return Schema(validator(given.value, registry=Registry()).iter_errors)


def _compile_patterns(given: Node, whole: Any) -> Iterator[Pattern]:
    """Compile every pattern of a schema. Raises `ConfigError` for external references."""
    if not isinstance(given.value, dict):
        return
    for key in given.value:
        below = given.at(key)
        if key in _UNSUPPORTED_KEYWORDS:
            raise below.wrong(f"`{key}` is not supported in a check", hint="remove the keyword")
        if key in _REFERENCES:
            _check_reference(below, whole)
        elif key == "pattern":
            yield compile_pattern(below)
        elif key == "patternProperties":
            for source in below.value:
                named = Node(source, below.file, (*below.place, source), below.lines)
                yield compile_pattern(named)
                yield from _compile_patterns(below.at(source), whole)
        elif key in _SUBSCHEMAS_BY_NAME:
            for name in below.value:
                yield from _compile_patterns(below.at(name), whole)
        elif key not in _DATA_KEYWORDS:
            members = list(below.items()) if isinstance(below.value, list) and below.value else []
            for each in members or [below]:
                yield from _compile_patterns(each, whole)


def _check_reference(given: Node, whole: Any) -> None:
    reference = given.text()
    parts = reference.split("/")
    target = whole
    if parts[0] != "#":
        raise given.wrong(
            f"{quote_value(reference)} points outside the schema; references are not fetched",
            hint="use #/$defs/NAME",
        )
    for part in parts[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, dict) or name not in target:
            raise given.wrong(f"{quote_value(reference)} does not exist in the schema")
        target = target[name]


def _build_safe_keywords(patterns: dict[str, Pattern]) -> dict[str, Any]:
    """Replace the keywords that jsonschema implements with Python's `re`."""
    # `re` backtracks: a pattern and a text can be chosen so that a match takes hours.
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

    return {
        "pattern": pattern,
        "patternProperties": by_pattern,
        "additionalProperties": additional,
    }
