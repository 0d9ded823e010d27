"""The JSON that assay writes: compact, standard, and read back to an equal object."""

import json
from functools import cache
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from assay.errors import WireError

_BYTE_N, _BYTE_I = b"NI"
_ModelT = TypeVar("_ModelT", bound=BaseModel)


def validate(kind: type[_ModelT], fields: dict[str, Any]) -> _ModelT:
    """What `kind.model_validate(fields)` gives, for what is made for every sample.

    Pydantic's own method asks about ten settings first, which takes half as long as validation.
    """
    made: _ModelT = kind.__pydantic_validator__.validate_python(fields)
    return made


def construct_unchecked(kind: type[_ModelT], fields: dict[str, Any]) -> _ModelT:
    """What `validate` gives, at half the cost, for fields of `kind` whose values fit them.

    For what assay itself makes for every sample: nothing is checked.
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
    """The defaults of all fields in their order, and what makes those that are not shared."""
    fields = kind.model_fields
    factories = [(name, field.default_factory) for name, field in fields.items()]
    return (
        {name: field.default for name, field in fields.items()},
        [(name, factory) for name, factory in factories if factory is not None],
    )


def set_unchecked(model: BaseModel, fields: dict[str, Any]) -> None:
    """Set fields to values of their types, for what is done to every sample.

    Pydantic's own assignment makes two calls for each field.
    """
    model.__dict__.update(fields)
    model.__pydantic_fields_set__.update(fields)


class NestedModel(BaseModel):
    """A type that is often a part of another, under a field whose default is None."""

    def __eq__(self, other: object) -> bool:
        # Leaving defaults out compares each value with None, where pydantic's own way is slow.
        return False if other is None else super().__eq__(other)


class JsonModel(NestedModel):
    """A type that goes to files and stores. Defaults are left out; unknown fields are kept."""

    # Constants only so that `to_json` can refuse them: null would be a silent change.
    model_config = ConfigDict(extra="allow", ser_json_inf_nan="constants")

    def to_json(self) -> str:
        """One line of JSON. Raises `WireError` for what JSON cannot hold."""
        return self.to_json_bytes().decode()

    def to_json_bytes(self) -> bytes:
        """What `to_json` says, as UTF-8."""
        try:
            data = self.__pydantic_serializer__.to_json(self, exclude_defaults=True)
        except PydanticSerializationError as error:
            raise WireError(
                f"the object cannot be written as JSON: {error}",
                where=type(self).__name__,
                hint="use plain JSON values in `input`, `metadata` and `ground_truth`",
            ) from error
        # A single byte is found ten times faster than a word, and is usually not there.
        if (_BYTE_N in data and b"NaN" in data) or (_BYTE_I in data and b"Infinity" in data):
            _refuse_constants(data, type(self).__name__)
        return data

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        return cls.model_validate_json(data)

    def to_dict(self) -> dict[str, Any]:
        """The plain objects that `to_json` would write."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls.model_validate(data)


def _refuse_constants(data: bytes, where: str) -> None:
    """Raise if `data` holds NaN or an infinity outside a string."""

    def refuse(constant: str) -> None:
        raise WireError(
            f"the object contains {constant}, which JSON cannot represent",
            where=where,
            hint="use None for an unknown number",
        )

    json.loads(data, parse_constant=refuse)
