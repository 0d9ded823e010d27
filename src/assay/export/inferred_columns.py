"""Column types inferred from the rows, for objects whose keys are not known beforehand.

A Parquet column has one type. The type of an object is the union of the keys seen at its path, so
an object without one of them reads back with that key as null. Values of several types at one path
become JSON text. `find_changes` reports both.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.errors import WireError

ValueKind = Literal["null", "bool", "int", "float", "text", "list", "object"]

MAX_FIELDS = 1000
"""Keys in all columns together. Each costs space in every row, and memory in every reader."""

# Shapes are built recursively; readers of Parquet have limits of their own.
_MAX_DEPTH = 40
# The key of objects that are always empty: Parquet has no type for a struct without fields.
_NO_KEYS = "_"

PADDED = "padded with null for keys that other objects of the column have"
RETYPED = "values of several types in one place; written as JSON text, or as floats"
REORDERED = "keys in the order of the column"


@dataclass
class Shape:
    """The union of the values seen at one path."""

    kind: ValueKind = "null"
    fields: "dict[str, Shape]" = field(default_factory=dict)
    items: "Shape | None" = None

    def add(self, other: "Shape") -> None:
        """Widen this shape until values of the other one fit it."""
        if other.kind == "null" or (self.kind, other.kind) == ("float", "int"):
            return
        if self.kind == "null" or (self.kind, other.kind) == ("int", "float"):
            self.kind = other.kind
        elif self.kind != other.kind:
            self.kind, self.fields, self.items = "text", {}, None
            return
        for key, inner in other.fields.items():
            self.fields.setdefault(key, Shape()).add(inner)
        if other.items is not None:
            self.items = self.items or Shape()
            self.items.add(other.items)

    def count_fields(self) -> int:
        inner = [*self.fields.values(), *([self.items] if self.items else [])]
        return len(self.fields) + sum(each.count_fields() for each in inner)

    def build_column(self) -> Any:
        """Return the type of a column that accepts every value seen."""
        if self.kind == "list":
            return [(self.items or Shape()).build_column()]
        if self.kind == "object":
            fields = {key: inner.build_column() for key, inner in self.fields.items()}
            return fields or {_NO_KEYS: str}
        return {"bool": bool, "int": int, "float": float}.get(self.kind, str)


def infer_shape(value: Any, depth: int = 0) -> Shape:
    """Return the shape of one JSON value. Raises `WireError` for NaN and for deep nesting."""
    if depth > _MAX_DEPTH:
        raise WireError(f"the row is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        fields = {key: infer_shape(inner, depth + 1) for key, inner in value.items()}
        return Shape("object", fields)
    if isinstance(value, list | tuple):
        items = Shape()
        for each in value:
            items.add(infer_shape(each, depth + 1))
        return Shape("list", items=items if value else None)
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"{value} is not a JSON number")
    # Arrow's largest integer type has 64 bits.
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return Shape("text")
    kinds: dict[type, ValueKind] = {type(None): "null", bool: "bool", int: "int", float: "float"}
    return Shape(next((kind for base, kind in kinds.items() if isinstance(value, base)), "text"))


def fit_to_shape(value: Any, shape: Shape) -> Any:
    """Convert a value to the type of its column."""
    if value is None:
        return None
    if shape.kind == "object":
        fields = {key: fit_to_shape(value.get(key), inner) for key, inner in shape.fields.items()}
        return fields or {_NO_KEYS: None}
    if shape.kind == "list":
        return [fit_to_shape(each, shape.items or Shape()) for each in value]
    if shape.kind == "text" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return float(value) if shape.kind == "float" else value


def find_changes(before: Any, after: Any) -> set[str]:
    """Return the kinds of changes between a value and its form in the column."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found = {PADDED} if after.keys() - before.keys() else set()
        if [key for key in after if key in before] != list(before):
            found.add(REORDERED)
        pairs: Iterable[tuple[Any, Any]] = ((before[key], after[key]) for key in before)
    elif isinstance(before, list | tuple) and isinstance(after, list):
        found, pairs = set(), zip(before, after, strict=True)
    else:
        return set() if type(before) is type(after) else {RETYPED}
    return found.union(*(find_changes(*pair) for pair in pairs))


def select_values(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path such as `tools[].function`; none where a part is missing."""
    step, _, rest = path.partition(".")
    name = step.removesuffix("[]")
    inner = value.get(name) if isinstance(value, Mapping) else None
    if inner is None:
        return
    for each in inner if step.endswith("[]") else [inner]:
        if rest:
            yield from select_values(each, rest)
        else:
            yield each
