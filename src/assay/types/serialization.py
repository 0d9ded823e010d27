"""JSON serialization: compact, valid JSON that is read back to an equal object."""

import json
from functools import cache
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from assay.errors import WireError

_BYTE_N, _BYTE_I = b"NI"
_ModelT = TypeVar("_ModelT", bound=BaseModel)


def validate(kind: type[_ModelT], fields: dict[str, Any]) -> _ModelT:
    """Return `kind.model_validate(fields)`, faster."""
    # Pydantic's method checks ten settings first, which takes half as long as the validation.
    made: _ModelT = kind.__pydantic_validator__.validate_python(fields)
    return made


def construct_unchecked(kind: type[_ModelT], fields: dict[str, Any]) -> _ModelT:
    """Build a `kind` without validation, at half the cost of `validate`.

    Only for objects that assay builds for every sample from values of the right types.
    """
    defaults, factories = _collect_defaults(kind)
    values = {**defaults, **fields}
    for name, factory in factories:
        if name not in fields:
            values[name] = factory()
    made = object.__new__(kind)
    _set_field_values(made, values)
    _set_fields_set(made, set(fields))
    _set_extra(made, {})
    _set_private(made, None)
    return made


_set_field_values, _set_fields_set, _set_extra, _set_private = (
    BaseModel.__dict__[slot].__set__
    for slot in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)


@cache
def _collect_defaults(kind: type[BaseModel]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    # Defaults in the order of the fields, and the factories of those that cannot be shared.
    fields = kind.model_fields
    factories = [(name, field.default_factory) for name, field in fields.items()]
    return (
        {name: field.default for name, field in fields.items()},
        [(name, factory) for name, factory in factories if factory is not None],
    )


def set_unchecked(model: BaseModel, fields: dict[str, Any]) -> None:
    """Set fields without validation; the values must have the right types."""
    # Pydantic's own assignment makes two calls for each field.
    model.__dict__.update(fields)
    model.__pydantic_fields_set__.update(fields)


class NestedModel(BaseModel):
    """A model that is often the value of a field whose default is None."""

    def __eq__(self, other: object) -> bool:
        # `exclude_defaults` compares each value with None, for which pydantic's `__eq__` is slow.
        return False if other is None else super().__eq__(other)


class JsonModel(NestedModel):
    """A model for files and stores: omits defaults and keeps unknown fields."""

    # "constants" lets `to_json` find and refuse NaN; the default would silently write null.
    model_config = ConfigDict(extra="allow", ser_json_inf_nan="constants")

    def to_json(self) -> str:
        """Return one line of JSON. Raises `WireError` for values that JSON cannot represent."""
        return self.to_json_bytes().decode()

    def to_json_bytes(self) -> bytes:
        """Return the JSON of `to_json` as UTF-8."""
        try:
            data = self.__pydantic_serializer__.to_json(self, exclude_defaults=True)
        except PydanticSerializationError as error:
            raise WireError(
                f"the object cannot be written as JSON: {error}",
                where=type(self).__name__,
                hint="use plain JSON values in `input`, `metadata` and `ground_truth`",
            ) from error
        # Searching a single byte is ten times faster than a word, and usually finds nothing.
        if (_BYTE_N in data and b"NaN" in data) or (_BYTE_I in data and b"Infinity" in data):
            constants: list[str] = []
            # Parsed, because "NaN" may also be part of a string.
            json.loads(data, parse_constant=constants.append)
            if constants:
                raise WireError(
                    f"the object contains {constants[0]}, which JSON cannot represent",
                    where=type(self).__name__,
                    hint="use None for an unknown number",
                )
        return data

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read the output of `to_json`."""
        return cls.model_validate_json(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain objects that `to_json` writes."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read the output of `to_dict`."""
        return cls.model_validate(data)


def refuse_json_constant(name: str) -> None:
    """Raise `ValueError`: the `parse_constant` of readers that refuse NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")
