"""Gemini contents: parts, function names, both spellings of keys, signatures kept."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats.gemini import from_gemini, to_gemini
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

signed = st.sampled_from([{}, {"thoughtSignature": "sig"}, {"thought_signature": "sig"}])
media = st.fixed_dictionaries(
    {},
    optional={
        "mimeType": st.sampled_from(["image/png", "audio/wav", "odd type", 5]),
        "mime_type": st.sampled_from(["image/png", "video/mp4"]),
        "data": words,
        "fileUri": image_urls | words,
        "file_uri": image_urls,
    },
)
said_parts = st.one_of(
    st.builds(lambda text, more: {"text": text, **more}, words, signed),
    st.builds(lambda inner, more: {"inlineData": inner, **more}, media | values, signed),
    st.builds(lambda inner, more: {"inline_data": inner, **more}, media, some_unknown),
    st.builds(lambda inner, more: {"fileData": inner, **more}, media, some_unknown),
    st.builds(
        lambda url, kind: {"fileData": {"mimeType": kind, "fileUri": url}},
        image_urls,
        st.sampled_from(["image/png", "image/webp", ""]),
    ),
    st.builds(lambda inner: {"executableCode": inner}, values),
    some_unknown,
)
calls = st.builds(
    lambda key, optional, name, more: {key: {"name": name, **optional}, **more},
    st.sampled_from(["functionCall", "function_call"]),
    st.fixed_dictionaries({}, optional={"args": st.none() | objects, "id": names, "x": values}),
    names,
    signed,
)
responses = st.builds(
    lambda key, optional, name, more: {key: {"name": name, **optional}, **more},
    st.sampled_from(["functionResponse", "function_response"]),
    st.fixed_dictionaries(
        {},
        optional={
            "response": st.none()
            | objects
            | st.builds(lambda text: {"output": text}, words | values),
            "id": names,
            "will_continue": st.booleans(),
        },
    ),
    names,
    some_unknown,
)
thoughts = st.builds(lambda text, more: {"text": text, "thought": True, **more}, words, signed)
user_contents = st.builds(
    lambda role, parts, more: {**role, "parts": parts, **more},
    st.sampled_from([{}, {"role": "user"}, {"role": "function"}]),
    st.lists(said_parts | responses, max_size=4) | st.lists(responses, max_size=2),
    some_unknown,
)
model_contents = st.builds(
    lambda parts, more: {"role": "model", "parts": parts, **more},
    st.lists(said_parts | calls | thoughts, max_size=4)
    | st.tuples(thoughts, said_parts, calls).map(list),
    some_unknown,
)
instructions = st.none() | st.builds(
    lambda parts, more: {"parts": parts, **more}, st.lists(said_parts, max_size=3), some_unknown
)

maybe_own: st.SearchStrategy[dict[str, Any]] = st.just({}) | some_keys.map(
    lambda kept: {"gemini": kept}
)
native_blocks = st.one_of(
    st.just(data_block(type="executableCode", gemini={"executableCode": {"code": "1"}})),
    st.builds(lambda text, extra: text_block(text=text, **extra), words, maybe_own),
)
said = words | blocks_of(words, native_blocks)
expressible = st.one_of(
    st.builds(lambda content: Message(role="user", content=content), st.none() | said),
    st.builds(
        lambda content, name, call: Message(
            role="tool", content=content, name=name, tool_call_id=call
        ),
        st.none() | words,
        names,
        st.none() | names,
    ),
    st.builds(
        lambda content, tool_calls, fields: Message(
            role="assistant", content=content, tool_calls=tool_calls, **fields
        ),
        st.none() | said,
        calls_of(maybe_own, st.none() | names),
        st.fixed_dictionaries({}, optional={"reasoning": words}),
    ),
)
conversations = st.builds(
    lambda system, rest: system + rest,
    st.just([]) | said.map(lambda content: [Message(role="system", content=content)]),
    st.lists(expressible, max_size=4),
)


def wheres(messages: list[Message]) -> list[str]:
    return [loss.where for loss in to_gemini(messages).dropped]


@given(instructions, st.lists(user_contents | model_contents, max_size=4))
def test_what_was_read_is_written_exactly_even_after_being_recorded(
    instruction: Any, wire: list[dict[str, Any]]
) -> None:
    messages = from_gemini(wire, system_instruction=instruction)

    for read in (messages, recorded(messages)):
        chat = to_gemini(read).exact()
        assert as_json([chat.system_instruction, chat.contents]) == as_json([instruction, wire])


@given(conversations)
def test_messages_it_can_express_come_back_equal(messages: list[Message]) -> None:
    chat = to_gemini(messages).exact()

    assert from_gemini(chat.contents, system_instruction=chat.system_instruction) == messages


@given(st.lists(any_messages(), max_size=5))
def test_nothing_is_lost_without_a_report(messages: list[Message]) -> None:
    written = to_gemini(messages)

    chat = written.value
    back = from_gemini(chat.contents, system_instruction=chat.system_instruction)
    assert unreported(messages, back, written.dropped) == []


def test_parallel_calls_are_answered_in_one_content_under_their_tools_names() -> None:
    asked = (ToolCall(id="1", name="f", arguments={"a": 1}), ToolCall(id="2", name="g"))
    messages = [
        Message(role="assistant", tool_calls=asked),
        Message(role="tool", tool_call_id="2", content="two"),
        Message(role="tool", tool_call_id="1", content="one"),
    ]

    chat = to_gemini(messages).exact()

    assert chat.contents == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}},
                {"functionCall": {"id": "2", "name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "2", "name": "g", "response": {"output": "two"}}},
                {"functionResponse": {"id": "1", "name": "f", "response": {"output": "one"}}},
            ],
        },
    ]


def test_results_without_ids_are_named_in_the_order_of_the_calls() -> None:
    messages = [
        Message(role="assistant", tool_calls=(ToolCall(name="f"), ToolCall(id="2", name="g"))),
        Message(role="tool", content="one"),
        Message(role="tool", content="two"),
    ]

    answers = to_gemini(messages).exact().contents[1]["parts"]

    assert [part["functionResponse"]["name"] for part in answers] == ["f", "g"]


def test_a_result_of_no_known_call_is_reported() -> None:
    assert wheres([Message(role="tool", tool_call_id="9", content="x")]) == ["messages[0].name"]


@pytest.mark.parametrize(
    ("response", "content"),
    [
        ({"output": "text"}, "text"),
        ({"output": 5}, '{"output":5}'),
        ({"output": "text", "more": 1}, '{"output":"text","more":1}'),
        ({"result": "text"}, '{"result":"text"}'),
        ({}, None),
    ],
)
def test_only_a_lone_text_output_is_unwrapped(response: Any, content: str | None) -> None:
    part = {"functionResponse": {"name": "f", "response": response}}
    wire = [{"role": "user", "parts": [part]}]

    (message,) = from_gemini(wire)

    assert message.content == content
    assert to_gemini([message]).exact().contents == wire


def test_a_changed_result_is_not_written_as_the_object_it_was() -> None:
    part = {"functionResponse": {"name": "f", "response": {"a": 1}}}
    (message,) = from_gemini([{"role": "user", "parts": [part]}])

    written = to_gemini([message.model_copy(update={"content": "new"})])

    answer = written.value.contents[0]["parts"][0]["functionResponse"]
    assert answer["response"] == {"output": "new"}
    assert [loss.where for loss in written.dropped] == ["messages[0].gemini"]


def test_snake_case_says_the_same_as_camel_case() -> None:
    snake = {"function_call": {"name": "f", "args": {}}, "thought_signature": "s"}
    camel = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}

    (left,) = from_gemini([{"role": "model", "parts": [snake]}])
    (right,) = from_gemini([{"role": "model", "parts": [camel]}])

    assert left.tool_calls == right.tool_calls
    assert left.tool_calls[0].model_extra == {"gemini": {"thoughtSignature": "s"}}


def test_thought_parts_are_reasoning() -> None:
    parts = [{"text": "hm", "thought": True, "thoughtSignature": "s"}, {"text": "4"}]
    wire = [{"role": "model", "parts": parts}]

    (message,) = from_gemini(wire)

    assert (message.reasoning, message.content) == ("hm", "4")
    assert to_gemini([message]).exact().contents == wire


def test_a_system_instruction_may_be_a_string() -> None:
    messages = from_gemini([], system_instruction="be good")

    assert messages == [Message(role="system", content="be good")]
    assert to_gemini(messages).value.system_instruction == {"parts": [{"text": "be good"}]}


def test_adding_a_result_does_not_change_the_content_that_was_read() -> None:
    wire = [{"parts": [{"function_response": {"name": "f", "response": {"output": "a"}}}]}]
    messages = [*from_gemini(wire), Message(role="tool", name="g", content="b")]

    to_gemini(messages)

    assert to_gemini(messages[:1]).value.contents == wire
    assert len(to_gemini(messages).value.contents[0]["parts"]) == 2


def test_an_image_whose_type_is_not_known_is_reported() -> None:
    block = data_block(type="image_url", image_url={"url": "https://example.org/image"})

    assert wheres([Message(role="user", content=(block,))]) == ["messages[0].content[0]"]


def test_a_mid_conversation_system_message_and_blocks_of_a_result_are_reported() -> None:
    blocks = (text_block(text="a"), data_block(type="file"))
    messages = [
        Message(role="user", content="q"),
        Message(role="system", content="be brief"),
        Message(role="tool", name="f", content=blocks),
    ]

    assert wheres(messages) == [
        "messages[1].role",
        "messages[2].content[1]",
        "messages[2].content",
    ]


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        ("text", "contents[0]"),
        ({"role": "assistant", "parts": []}, "contents[0].role"),
        ({"role": {}, "parts": []}, "contents[0].role"),
        ({"role": "user"}, "contents[0].parts"),
        ({"role": "user", "parts": ["text"]}, "contents[0].parts[0]"),
        ({"role": "user", "parts": [{"text": 5}]}, "contents[0].parts[0].text"),
        (
            {"role": "model", "parts": [{"functionCall": 5}]},
            "contents[0].parts[0].functionCall",
        ),
        (
            {"role": "model", "parts": [{"functionCall": {}}]},
            "contents[0].parts[0].functionCall.name",
        ),
        (
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": [1]}}]},
            "contents[0].parts[0].functionCall.args",
        ),
        (
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "x"}}]},
            "contents[0].parts[0].functionResponse.response",
        ),
        (
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "id": 5}}]},
            "contents[0].parts[0].functionResponse.id",
        ),
    ],
)
def test_wrong_types_are_refused_with_their_place(wire: Any, where: str) -> None:
    with pytest.raises(WireError) as caught:
        from_gemini([wire])

    assert caught.value.where == where
    assert caught.value.hint


def test_a_system_instruction_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(
        WireError, match=r"system_instruction: the value is of type int, not an object"
    ):
        from_gemini([], system_instruction=5)  # type: ignore[arg-type]  # what is tested


@given(st.sampled_from(["user", "model", None]), values | st.lists(objects))
def test_any_json_is_read_or_refused(role: str | None, parts: Any) -> None:
    with contextlib.suppress(WireError):
        from_gemini([{"role": role, "parts": parts}])


def test_deep_nesting_does_not_crash() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}

    with pytest.raises(WireError, match=r"contents\[0\]: the value is nested too deeply"):
        from_gemini([{"role": "model", "parts": [{"functionCall": {"name": "f", "args": deep}}]}])
