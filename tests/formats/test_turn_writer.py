"""The parts that Anthropic, Bedrock and Gemini share: calls without ids, and turns kept as read."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats.anthropic import from_anthropic, to_anthropic
from assay.formats.bedrock import from_bedrock, to_bedrock
from assay.formats.conversion import Converted
from assay.formats.gemini import from_gemini
from assay.formats.turn_writer import keep_original, read_tool_use
from assay.types import Message, ToolCall

_WRITERS = [(to_anthropic, "toolu"), (to_bedrock, "call")]


@pytest.mark.parametrize(("write", "prefix"), _WRITERS)
def test_a_new_call_id_is_not_one_that_another_call_has(
    write: Callable[[Iterable[Message]], Converted[Any]], prefix: str
) -> None:
    taken = ToolCall(id=f"{prefix}_1_0", name="f", arguments={})
    unnamed = ToolCall(name="g", arguments={})
    messages = [
        Message(role="user", content="a"),
        Message(role="assistant", tool_calls=(unnamed,)),
        Message(role="tool", name="g", content="b"),
        Message(role="assistant", tool_calls=(taken,)),
    ]

    converted = write(messages)

    written = str(converted.value.messages)
    assert written.count(f"'{prefix}_1_0_'") == 2
    assert written.count(f"'{prefix}_1_0'") == 1
    assert [each.where for each in converted.dropped][:2] == [
        "messages[1].tool_calls[0].id",
        "messages[2].tool_call_id",
    ]


def test_a_call_keeps_the_keys_that_only_its_format_has() -> None:
    use = {"id": "1", "name": "f", "input": {}, "caller": "x"}

    call = read_tool_use(use, "id", "here", "anthropic")

    assert call.model_extra == {"anthropic": {"caller": "x"}}


def test_only_a_turn_that_would_not_be_restored_is_kept() -> None:
    wire = {"role": "user", "content": "a"}
    messages = [Message(role="user", content="a")]

    assert keep_original(wire, [wire], messages, "x") is messages
    kept = keep_original(wire, [], messages, "x")
    assert kept[0].model_extra == {"spelling": {"format": "x", "message": wire}}


@pytest.mark.parametrize(
    "read",
    [
        lambda deep: from_anthropic([], system=[{"type": "x", "a": deep}]),
        lambda deep: from_bedrock([], system=[{"x": deep}]),
        lambda deep: from_gemini([], system_instruction={"parts": [{"x": deep}]}),
    ],
    ids=["anthropic", "bedrock", "gemini"],
)
def test_a_system_prompt_that_is_nested_too_deeply_is_refused(read: Callable[[Any], Any]) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}

    with pytest.raises(WireError, match="the value is nested too deeply"):
        read(deep)


def test_a_system_prompt_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(WireError, match="system: the value is of type int, not a list"):
        from_bedrock([], system=3)  # type: ignore[arg-type]  # what is tested
