"""Hugging Face and TRL messages: arguments are objects, names are known, nothing vanishes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats.huggingface import from_huggingface, to_huggingface
from assay.types import Message, ToolCall
from message_strategies import (
    any_messages,
    as_json,
    blocks_of,
    calls_of,
    data_block,
    image_urls,
    names,
    objects,
    recorded,
    some_keys,
    some_unknown,
    text_block,
    unreported,
    values,
    words,
)

argument_values = st.none() | objects | st.sampled_from(["{}", '{"a": 1}', "{cut", ""])


@st.composite
def wire_calls(draw: st.DrawFn) -> dict[str, Any]:
    function = {"name": draw(names), "arguments": draw(argument_values), **draw(some_unknown)}
    if draw(st.booleans()):
        return {"name": draw(names), "arguments": draw(argument_values), **draw(some_unknown)}
    optional = {"id": st.none() | names, "type": st.sampled_from([None, "function"])}
    return {
        "function": function,
        **draw(st.fixed_dictionaries({}, optional=optional)),
        **draw(some_unknown),
    }


wire_parts = st.one_of(
    st.builds(lambda text, more: {"type": "text", "text": text, **more}, words, some_unknown),
    st.builds(lambda more: {"type": "image", **more}, some_unknown),
    st.builds(lambda url, more: {"type": "image", "url": url, **more}, image_urls, some_unknown),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, image_urls),
    st.builds(lambda more: {"type": "audio", "path": "a.wav", **more}, objects).filter(
        lambda part: part["type"] == "audio"
    ),
)
wire_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | words | st.lists(wire_parts, max_size=3),
        "tool_calls": st.none() | st.lists(wire_calls(), max_size=2),
        "tool_call_id": st.none() | st.sampled_from(["1", "2"]) | names,
        "name": st.none() | names,
        "reasoning_content": st.none() | words,
        "reasoning": values,
        "weight": values,
        "metadata": values,
        "spelling": values,
        "huggingface": values,
    },
)
maybe_own: st.SearchStrategy[dict[str, Any]] = st.just({}) | some_keys.map(
    lambda kept: {"huggingface": kept}
)
native_blocks = st.one_of(
    maybe_own.map(lambda extra: data_block(type="audio", **(extra or {"huggingface": {}}))),
    st.builds(lambda text, extra: text_block(text=text, **extra), words, maybe_own),
)
expressible = st.builds(
    lambda fields, calls, extra: Message(tool_calls=calls, **fields, **extra),
    st.fixed_dictionaries(
        {"role": names, "content": st.none() | words | blocks_of(words, native_blocks)},
        optional={"tool_call_id": names, "name": names, "reasoning": words},
    ),
    calls_of(maybe_own, st.none() | names),
    maybe_own,
).filter(lambda message: message.role != "tool")


@given(st.lists(wire_messages, max_size=4))
def test_what_was_read_is_written_exactly_even_after_being_recorded(
    wire: list[dict[str, Any]],
) -> None:
    messages = from_huggingface(wire)

    for read in (messages, recorded(messages)):
        assert as_json(to_huggingface(read).exact()) == as_json(wire)


@given(st.lists(expressible, max_size=3))
def test_messages_it_can_express_come_back_equal(messages: list[Message]) -> None:
    assert from_huggingface(to_huggingface(messages).exact()) == messages


@given(st.lists(any_messages(), max_size=4))
def test_nothing_is_lost_without_a_report(messages: list[Message]) -> None:
    written = to_huggingface(messages)

    assert unreported(messages, from_huggingface(written.value), written.dropped) == []


def test_a_tool_message_gets_the_name_of_the_tool_it_answers_for() -> None:
    call = ToolCall(id="1", name="search", arguments={"q": "x"})
    messages = [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="1", content="found"),
    ]

    assert to_huggingface(messages).exact() == [
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "type": "function",
                    "id": "1",
                    "function": {"name": "search", "arguments": {"q": "x"}},
                }
            ],
        },
        {"role": "tool", "content": "found", "tool_call_id": "1", "name": "search"},
    ]


def test_a_tool_message_read_without_its_name_stays_without_it() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
    wire: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]

    assert to_huggingface(from_huggingface(wire)).exact() == wire


def test_malformed_arguments_are_reported_and_written_as_an_empty_object() -> None:
    call = ToolCall.model_validate({"function": {"name": "f", "arguments": '{"a": '}})

    written = to_huggingface([Message(role="assistant", tool_calls=(call,))])

    assert written.value[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}
    assert [loss.where for loss in written.dropped] == ["messages[0].tool_calls[0].raw_arguments"]


def test_openai_extras_have_no_place_and_are_reported() -> None:
    message = Message.model_validate({"role": "assistant", "refusal": "no", "audio": None})

    written = to_huggingface([message])

    assert [loss.where for loss in written.dropped] == ["messages[0].refusal"]


def test_an_object_that_only_memory_can_hold_is_kept_as_it_is() -> None:
    picture = object()
    part = {"type": "image", "image": picture}
    wire: list[dict[str, Any]] = [{"role": "user", "content": [part]}]

    assert to_huggingface(from_huggingface(wire)).exact() == wire


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        (5, "messages[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [None]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": 5}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "a", "tool_calls": "f"}, "messages[0].tool_calls"),
        ({"role": "a", "tool_calls": [None]}, "messages[0].tool_calls[0]"),
        ({"role": "a", "tool_calls": [{"function": 5}]}, "messages[0].tool_calls[0].function"),
        ({"role": "a", "tool_calls": [{"name": 5}]}, "messages[0].tool_calls[0].name"),
        (
            {"role": "a", "tool_calls": [{"name": "f", "arguments": [1]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"role": "a", "tool_calls": [{"type": "custom", "name": "f"}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"role": "a", "name": 5}, "messages[0].name"),
    ],
)
def test_wrong_types_are_refused_with_their_place(wire: Any, where: str) -> None:
    with pytest.raises(WireError) as caught:
        from_huggingface([wire])

    assert caught.value.where == where
    assert caught.value.hint


def test_deep_nesting_does_not_crash() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    call = {"function": {"name": "f", "arguments": deep}}

    with pytest.raises(WireError, match=r"messages\[0\]: the value is nested too deeply"):
        from_huggingface([{"role": "assistant", "tool_calls": [call]}])
