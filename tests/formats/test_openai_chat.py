"""OpenAI chat messages: exact both ways, and a report of what the API does not take."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError, WireError
from assay.formats.openai_chat import from_openai_chat, to_openai_chat
from assay.types import Message, ToolCall
from message_strategies import (
    any_messages,
    as_json,
    blocks_of,
    calls_of,
    keys,
    names,
    objects,
    recorded,
    some_unknown,
    unknown,
    unreported,
    values,
    words,
)

argument_texts = words | st.sampled_from(["{}", '{"a":1}', '{"a": 1}', "[]", "{cut o", "null"])


@st.composite
def wire_calls(draw: st.DrawFn) -> dict[str, Any]:
    call: dict[str, Any] = {"id": draw(names), "type": "function", **draw(some_unknown)}
    shape = draw(st.sampled_from(["function", "custom", "object", "bare", "namespaced"]))
    if shape == "custom":
        return call | {"type": "custom", "custom": {"name": draw(names), "input": draw(words)}}
    call["function"] = {"name": draw(names), "arguments": draw(argument_texts)}
    if shape == "object":
        call["function"] = {"name": draw(names), "arguments": draw(objects), "strict": True}
    if shape == "bare":
        del call["type"], call["id"]
    if shape == "namespaced":
        call |= {"anthropic": draw(values), "raw_arguments": draw(values)}
    return call


wire_parts = st.one_of(
    st.builds(lambda text, more: {"type": "text", "text": text, **more}, words, some_unknown),
    st.builds(lambda url, more: {"type": "image_url", "image_url": url, **more}, values, unknown),
    st.builds(lambda data: {"type": "input_audio", "input_audio": data}, values),
    st.builds(lambda more: {"type": "something_new", "gemini": 1, **more}, some_unknown),
)
wire_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])},
    optional={
        "content": st.none() | words | st.lists(wire_parts, max_size=3),
        "tool_calls": st.none() | st.lists(wire_calls(), max_size=2),
        "function_call": st.builds(dict, name=names, arguments=argument_texts),
        "tool_call_id": st.none() | names,
        "name": st.none() | names,
        "reasoning_content": st.none() | words,
        "refusal": st.none() | words,
        "audio": values,
        "metadata": values,
        "model": values,
        "spelling": values,
        "anthropic": values,
        "openai_chat": values,
    },
)
expressible = st.builds(
    lambda fields, calls, extra: Message(tool_calls=calls, **fields, **extra),
    st.fixed_dictionaries(
        {"role": names, "content": st.none() | words | blocks_of(words)},
        optional={"tool_call_id": names, "name": names, "reasoning": words},
    ),
    calls_of(),
    st.dictionaries(keys, values, max_size=2),
)


@given(st.lists(wire_messages, max_size=3))
def test_what_was_read_is_written_exactly_even_after_being_recorded(
    wire: list[dict[str, Any]],
) -> None:
    messages = from_openai_chat(wire)

    for read in (messages, recorded(messages)):
        written = to_openai_chat(read, reasoning_key="reasoning_content")
        assert as_json(written.exact()) == as_json(wire)


@given(st.lists(expressible, max_size=3))
def test_messages_it_can_express_come_back_equal(messages: list[Message]) -> None:
    written = to_openai_chat(messages, reasoning_key="reasoning_content")

    assert from_openai_chat(written.exact()) == messages


@given(st.lists(any_messages(), max_size=4))
def test_nothing_is_lost_without_a_report(messages: list[Message]) -> None:
    written = to_openai_chat(messages)

    assert unreported(messages, from_openai_chat(written.value), written.dropped) == []


def test_arguments_keep_the_models_own_spelling_even_when_malformed() -> None:
    for text in ('{"a":  1}', '{"a": ', "", "[1]", '{"a":1,"a":2}'):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
        wire = [{"role": "assistant", "content": None, "tool_calls": [call]}]

        assert to_openai_chat(from_openai_chat(wire)).exact() == wire


def test_a_legacy_function_call_is_read_as_a_tool_call() -> None:
    call = {"name": "f", "arguments": '{"a":1}'}
    wire = [{"role": "assistant", "content": None, "function_call": call}]

    (message,) = from_openai_chat(wire)

    assert message.tool_calls == (ToolCall(name="f", arguments={"a": 1}),)
    assert to_openai_chat([message]).exact() == wire


def test_a_custom_tool_call_is_read_with_its_input_as_raw_arguments() -> None:
    call = {"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    (message,) = from_openai_chat([{"role": "assistant", "tool_calls": [call]}])

    assert message.tool_calls[0].name == "sh"
    assert message.tool_calls[0].raw_arguments == "ls -l"


def test_reasoning_is_lost_unless_a_key_is_given_for_it() -> None:
    thought = [Message(role="assistant", content="4", reasoning="2+2")]

    silent, told = to_openai_chat(thought), to_openai_chat(thought, reasoning_key="reasoning")

    assert [loss.where for loss in silent.dropped] == ["messages[0].reasoning"]
    assert silent.value == [{"role": "assistant", "content": "4"}]
    assert told.exact() == [{"role": "assistant", "content": "4", "reasoning": "2+2"}]


def test_both_reasoning_keys_of_one_message_survive_where_reasoning_is_wanted() -> None:
    wire = [{"role": "assistant", "content": "", "reasoning": "a", "reasoning_content": "b"}]

    messages = from_openai_chat(wire)

    assert messages[0].reasoning == "b"
    assert to_openai_chat(messages, reasoning_key="reasoning_content").exact() == wire
    assert len(to_openai_chat(messages).dropped) == 2


@pytest.mark.parametrize("null", ["reasoning", "reasoning_content"])
def test_a_null_beside_the_reasoning_does_not_hide_it(null: str) -> None:
    said = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[null]
    wire = [{"role": "assistant", "content": "", null: None, said: "because"}]

    messages = from_openai_chat(wire)

    assert messages[0].reasoning == "because"
    assert to_openai_chat(messages, reasoning_key=said).exact() == wire  # type: ignore[arg-type]  # one of two
    assert "because" in to_openai_chat(messages, reasoning_key=null).value[0].values()  # type: ignore[arg-type]  # likewise


def test_an_unknown_reasoning_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="reasoning_key='thoughts'"):
        to_openai_chat([], reasoning_key="thoughts")  # type: ignore[arg-type]  # what is tested


def test_a_message_changed_since_it_was_read_is_written_as_it_is_now() -> None:
    wire = [{"role": "assistant", "metadata": {"a": "b"}, "tool_calls": []}]
    (message,) = from_openai_chat(wire)

    written = to_openai_chat([message.model_copy(update={"metadata": {"a": "c"}})])

    assert written.value == [{"role": "assistant", "content": None}]
    assert [loss.where for loss in written.dropped] == ["messages[0].metadata"]


def test_a_changed_text_keeps_the_spelling_of_the_rest() -> None:
    (message,) = from_openai_chat([{"role": "assistant", "content": "a", "tool_calls": []}])

    written = to_openai_chat([message.model_copy(update={"content": "b"})])

    assert written.exact() == [{"role": "assistant", "content": "b", "tool_calls": []}]


def test_a_call_with_arguments_that_contradict_their_raw_form_is_reported() -> None:
    call = ToolCall(name="f", arguments={"a": 1}, raw_arguments='{"a":2}')

    written = to_openai_chat([Message(role="assistant", tool_calls=(call,))])

    assert [loss.where for loss in written.dropped] == ["messages[0].tool_calls[0].arguments"]


def test_reasoning_that_came_as_an_extra_is_no_more_written_than_any_other() -> None:
    message = Message.model_validate(
        {"role": "assistant", "content": "", "reasoning": "a", "reasoning_content": "b"}
    )

    silent = to_openai_chat([message])
    told = to_openai_chat([message], reasoning_key="reasoning_content")

    assert silent.value == [{"role": "assistant", "content": ""}]
    assert len(silent.dropped) == 2
    assert told.value[0]["reasoning_content"] == "a"
    assert [loss.where for loss in told.dropped] == ["messages[0].reasoning_content"]


def test_an_extra_of_a_call_cannot_replace_what_the_call_says() -> None:
    call = ToolCall.model_validate({"id": "1", "name": "f", "function": 5})

    written = to_openai_chat([Message(role="assistant", tool_calls=(call,))])

    assert written.value[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert [loss.where for loss in written.dropped] == ["messages[0].tool_calls[0].function"]


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), object(), "\ud800"])
def test_arguments_that_json_cannot_hold_are_refused(value: object) -> None:
    call = ToolCall(name="f", arguments={"a": value})

    with pytest.raises(WireError, match=r"messages\[0\]\.tool_calls\[0\]\.arguments"):
        to_openai_chat([Message(role="assistant", tool_calls=(call,))])


def test_half_an_emoji_is_replaced_so_that_the_message_can_be_recorded() -> None:
    wire = {"role": "user", "content": "hm \ud83d", "note": "\ud83d", "metadata": {"a": 1}}

    messages = from_openai_chat([wire])

    assert messages[0].content == "hm \ufffd"
    assert recorded(messages) == messages


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        (None, "messages[0]"),
        ("text", "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": 5}, "messages[0].role"),
        ({"role": "user", 5: 6}, "messages[0]"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": {"type": "text"}}, "messages[0].content"),
        ({"role": "user", "content": ["text"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"text": "t"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0].name"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "a"}}]},
            "messages[0].tool_calls[0].custom.input",
        ),
        ({"role": "assistant", "function_call": "f"}, "messages[0].function_call"),
        ({"role": "assistant", "reasoning": {"a": 1}}, "messages[0].reasoning"),
        ({"role": "tool", "tool_call_id": 5}, "messages[0].tool_call_id"),
    ],
)
def test_wrong_types_are_refused_with_their_place(wire: Any, where: str) -> None:
    with pytest.raises(WireError) as caught:
        from_openai_chat([wire])

    assert caught.value.where == where
    assert caught.value.hint


wire_keys = words | st.sampled_from(["role", "content", "tool_calls"])


@given(st.lists(st.dictionaries(wire_keys, values), max_size=2))
def test_any_json_is_read_or_refused(wire: list[dict[str, Any]]) -> None:
    with contextlib.suppress(WireError):
        from_openai_chat(wire)


@pytest.mark.parametrize("key", ["content", "tool_calls", "function_call", "tool_call_id"])
def test_deep_nesting_does_not_crash(key: str) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(WireError, match=r"messages\[0\]"):
        from_openai_chat([{"role": "user", key: deep}])


def test_deep_nesting_under_an_unknown_key_does_not_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(WireError, match=r"messages\[0\]: the value is nested too deeply"):
        from_openai_chat([{"role": "user", "content": "", "refusal": deep}])


def test_only_messages_are_written() -> None:
    with pytest.raises(WireError, match=r"messages\[0\]: dict is not a Message"):
        to_openai_chat([{"role": "user"}])  # type: ignore[list-item]  # what is tested
