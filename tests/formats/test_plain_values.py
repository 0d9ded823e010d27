"""Foreign objects become plain values; what cannot be one is reported."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy
import pytest
from pydantic import BaseModel, Field, SecretStr

from assay.errors import WireError
from assay.formats.conversion import Dropped
from assay.formats.plain_values import MAX_DEPTH, has_method, read_attribute, simplify
from assay.types import Message


class Colour(Enum):
    RED = "red"


class Kind(StrEnum):
    TEXT = "text"


class Text(str):
    def __str__(self) -> str:
        return "something else"


@dataclass
class Part:
    text: str
    note: str | None = None
    _private: str = "hidden"


class Model(BaseModel, extra="allow"):
    parts: list[Part] = Field(default_factory=list)
    empty: str | None = None
    left_out: str = Field(default="x", exclude=True)


class Dumped:
    def to_dict(self) -> dict[str, Any]:
        return {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (3, 3),
        (Text("as it is"), "as it is"),
        (Colour.RED, "red"),
        (Kind.TEXT, "text"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (b"\xfb\xff", "+/8="),
        ((1, deque([2]), {3}), [1, [2], [3]]),
        (OrderedDict([(1, "a"), ("b", None)]), {"1": "a", "b": None}),
        (numpy.int64(3), 3),
        (numpy.float32(0.5), 0.5),
        (Part("hi"), {"text": "hi"}),
        (Model(parts=[Part("hi")], extra=1), {"parts": [{"text": "hi"}], "extra": 1}),
        (Dumped(), {"a": 1}),
        ("\ud800", "\ufffd"),
    ],
)
def test_values_become_plain(value: object, plain: object) -> None:
    dropped: list[Dropped] = []

    read = simplify(value, "output", dropped)

    assert read == plain
    assert type(read) is type(plain)
    assert dropped == []


def test_our_messages_are_kept() -> None:
    message = Message(role="user", content="hi")

    assert simplify([message], "output", [])[0] is message


def test_values_without_json_are_reported_and_never_shown() -> None:
    dropped: list[Dropped] = []
    value = {"key": [SecretStr("hunter2"), object], (1, 2): 3, "kept": 1}

    assert simplify(value, "output", dropped) == {"key": [None, None], "kept": 1}
    assert dropped == [
        Dropped("output.key[0]", "a value of type SecretStr; left out"),
        Dropped("output.key[1]", "a value of type type; left out"),
        Dropped("output", "a key of type tuple; left out"),
    ]


def test_the_limit_of_depth_is_exact() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]

    assert simplify(value, "output", []) == value
    with pytest.raises(WireError, match="nested too deeply"):
        simplify([value], "output", [])


def test_a_value_may_occur_twice_beside_itself() -> None:
    shared = {"a": 1}

    assert simplify([shared, shared], "output", []) == [shared, shared]


class EndlessKeys(Mapping[Any, int]):
    def __init__(self, key: object) -> None:
        self.key = key

    def __getitem__(self, key: object) -> int:
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.key


@pytest.mark.parametrize("key", ["same", None])
def test_endless_mappings_are_refused(key: object) -> None:
    with pytest.raises(WireError, match="more than 500,000 parts"):
        simplify(EndlessKeys(key), "output", [])


@dataclass
class Result:
    calls: list[str] = field(default_factory=list)

    def messages(self) -> str:
        self.calls.append("messages")
        return "called"

    @property
    def broken(self) -> str:
        raise KeyError("gone")


def test_attributes_are_read_and_methods_are_called() -> None:
    result = Result()

    assert read_attribute(result, "messages") == "called"
    assert read_attribute(result, "calls") == ["messages"]
    assert read_attribute(result, "missing") is None
    assert has_method(result, "messages")
    assert not has_method(result, "missing")
    with pytest.raises(WireError, match="broken: the Result cannot be read: KeyError: 'gone'"):
        read_attribute(result, "broken")
