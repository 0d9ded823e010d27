"""Deeply immutable models and mappings."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    field_validator,
    model_serializer,
    model_validator,
)

V = TypeVar("V")


class FrozenMapping(Mapping[str, V]):
    """An immutable mapping: hashable, and equal to a dict of the same content."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._items,))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def freeze(value: Any) -> Any:
    """Return plain data with dicts and lists made immutable. Raises `ValueError`."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} is not text")
        return FrozenMapping({key: freeze(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(inner) for inner in value)
    raise ValueError(f"a {type(value).__name__} is not plain data")


def thaw(value: Any) -> Any:
    """Return plain dicts and lists: the inverse of `freeze`."""
    if isinstance(value, Mapping):
        return {key: thaw(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(inner) for inner in value]
    return value


FrozenJson = Annotated[Any, AfterValidator(freeze), PlainSerializer(thaw)]
"""Any plain data, kept immutable and written unchanged."""


FrozenDict = Annotated[
    Mapping[str, V],
    AfterValidator(FrozenMapping),
    WrapSerializer(lambda value, write: write(dict(value))),
]
"""An immutable mapping of validated values."""


class FrozenModel(BaseModel):
    """An immutable, hashable model that forbids unknown fields."""

    # `defer_build`: importing the data types would otherwise build every manifest schema.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields replaced, validated like a new one."""
        # Pydantic's own method does not validate `update`, which would let mutable values in.
        if not update:
            return super().model_copy(deep=deep)
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**given, **(self.__pydantic_extra__ or {}), **update})


class FrozenOpenModel(FrozenModel):
    """An immutable model that keeps unknown fields and writes them unchanged."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FrozenJson]

    def __hash__(self) -> int:
        return hash((*self.__dict__.values(), FrozenMapping(self.__pydantic_extra__)))


class ExtensibleModel(FrozenModel):
    """An immutable model that keeps unknown fields only if they begin with `x-`."""

    extensions: FrozenDict[FrozenJson] = Field(default_factory=dict, validate_default=True)

    @field_validator("extensions")
    @classmethod
    def _are_extensions(cls, extensions: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in extensions:
            if not name.startswith("x-"):
                raise ValueError(f"the extension {name!r} does not begin with 'x-'")
        return extensions

    @model_validator(mode="before")
    @classmethod
    def _gather_extensions(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        found = {key: value for key, value in data.items() if str(key).startswith("x-")}
        if not found or "extensions" in data:
            return data
        rest = {key: value for key, value in data.items() if key not in found}
        return {**rest, "extensions": found}

    @model_serializer(mode="wrap")
    def _spread_extensions(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        spread = written.pop("extensions", {})
        return {**written, **spread}
