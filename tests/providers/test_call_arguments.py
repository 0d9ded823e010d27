"""Arguments that JSON cannot represent are kept as text."""

from typing import Any

import pytest

from assay.providers.call_arguments import add_raw_arguments, split_arguments
from assay.types import Message, ToolCall

INFINITE = float("inf")


@pytest.mark.parametrize("given", [{"a": 1, "b": [None, {"c": 0.5}]}, {}, None, "text", 3])
def test_arguments_that_json_can_represent_are_unchanged(given: Any) -> None:
    assert split_arguments(given) == (given, None)


@pytest.mark.parametrize("given", [{"a": INFINITE}, {"a": [{"b": -INFINITE}]}])
def test_an_infinite_number_leaves_only_the_text(given: Any) -> None:
    arguments, text = split_arguments(given)

    assert arguments == {}
    assert text is not None
    assert "Infinity" in text


def test_the_text_belongs_to_its_call() -> None:
    calls = (ToolCall(name="a"), ToolCall(name="b"))

    message = add_raw_arguments(Message(role="assistant", tool_calls=calls), [None, "{1e999}"])

    assert [call.raw_arguments for call in message.tool_calls] == [None, "{1e999}"]
