"""Anthropic messages: blocks, a separate system prompt, alternating roles, signatures kept."""

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats.anthropic import from_anthropic, to_anthropic
from assay.types import Message, ToolCall
from message_strategies import (
    any_messages,
    as_json,
    blocks_of,
    calls_of,
    data_block,
    names,
    objects,
    recorded,
    some_keys,
    some_unknown,
    text_block,
    unknown,
    unreported,
    values,
    words,
)

sources = st.one_of(
    st.builds(lambda data: {"type": "base64", "media_type": "image/png", "data": data}, words),
    st.builds(lambda path: {"type": "url", "url": f"https://example.org/{path}"}, words),
    st.builds(lambda kind: {"type": "base64", "media_type": kind, "data": ""}, words),
    values,
)
spoken = st.one_of(
    st.builds(lambda text, more: {"type": "text", "text": text, **more}, words, some_unknown),
    st.builds(lambda source, more: {"type": "image", "source": source, **more}, sources, unknown),
    st.builds(lambda source, more: {"type": "document", "source": source}, values, some_unknown),
    st.builds(lambda more: {"type": "image_url", "image_url": {"url": "a"}, **more}, some_unknown),
    st.builds(lambda more: {"type": "search_result", **more}, some_unknown),
)
thinking = st.one_of(
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, words),
    st.builds(lambda text: {"type": "thinking", "thinking": text}, words),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, words),
)
tool_uses = st.builds(
    lambda name, given, more: {"type": "tool_use", "id": "1", "name": name, "input": given, **more},
    names,
    objects,
    some_unknown,
)
results = st.builds(
    lambda optional, more: {"type": "tool_result", "tool_use_id": "1", **optional, **more},
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.none() | words | st.lists(spoken, max_size=2),
            "is_error": st.booleans(),
        },
    ),
    some_unknown,
)
user_turns = st.builds(
    lambda content, more: {"role": "user", "content": content, **more},
    words | st.lists(st.one_of(spoken, results), max_size=4),
    some_unknown,
)
assistant_turns = st.builds(
    lambda content, more: {"role": "assistant", "content": content, **more},
    words
    | st.lists(st.one_of(spoken, tool_uses, thinking), max_size=4)
    | st.tuples(thinking, spoken, tool_uses).map(list),
    some_unknown,
)
systems = st.none() | words | st.lists(spoken, max_size=3)

maybe_own: st.SearchStrategy[dict[str, Any]] = st.just({}) | some_keys.map(
    lambda kept: {"anthropic": kept}
)
said = words.filter(bool)
native_blocks = st.one_of(
    maybe_own.map(lambda extra: data_block(type="document", **(extra or {"anthropic": {}}))),
    st.builds(lambda text, extra: text_block(text=text, **extra), said, maybe_own),
)
contents = said | blocks_of(said, native_blocks)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """What Anthropic can express: a system prompt, then users and assistants taking turns."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message(role="system", content=draw(contents)))
    for _ in range(draw(st.integers(0, 3))):
        results = [
            Message(role="tool", tool_call_id=draw(names), content=draw(st.none() | contents))
            for _ in range(draw(st.integers(0, 2)))
        ]
        messages += [*results, Message(role="user", content=draw(contents))]
        calls = draw(calls_of(maybe_own))
        fields: dict[str, Any] = {"role": "assistant", "content": draw(contents)}
        if draw(st.booleans()):
            fields |= {"reasoning": draw(words), "anthropic": {"thinking": [{"signature": "s"}]}}
        messages.append(Message(tool_calls=calls, **fields))
    return messages


def wheres(messages: list[Message]) -> list[str]:
    return [loss.where for loss in to_anthropic(messages).dropped]


@given(systems, st.lists(user_turns | assistant_turns, max_size=4))
def test_what_was_read_is_written_exactly_even_after_being_recorded(
    system: Any, wire: list[dict[str, Any]]
) -> None:
    messages = from_anthropic(wire, system=system)

    for read in (messages, recorded(messages)):
        chat = to_anthropic(read).exact()
        assert as_json([chat.system, chat.messages]) == as_json([system, wire])


@given(conversations())
def test_messages_it_can_express_come_back_equal(messages: list[Message]) -> None:
    chat = to_anthropic(messages).exact()

    assert from_anthropic(chat.messages, system=chat.system) == messages


@given(st.lists(any_messages(), max_size=5))
def test_nothing_is_lost_without_a_report(messages: list[Message]) -> None:
    written = to_anthropic(messages)

    back = from_anthropic(written.value.messages, system=written.value.system)
    assert unreported(messages, back, written.dropped) == []


@given(st.lists(any_messages(), max_size=5))
def test_roles_alternate_unless_the_messages_were_read_otherwise(messages: list[Message]) -> None:
    roles = [turn["role"] for turn in to_anthropic(messages).value.messages]

    assert all(left != right for left, right in itertools.pairwise(roles))


def test_a_signature_survives_with_its_thinking() -> None:
    wire = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "2+2", "signature": "sig"},
                {"type": "text", "text": "4"},
            ],
        }
    ]

    (message,) = from_anthropic(wire)

    assert (message.reasoning, message.content) == ("2+2", "4")
    assert to_anthropic([message]).exact().messages == wire


def test_reasoning_without_a_signature_is_reported() -> None:
    thought = Message(role="assistant", content="4", reasoning="2+2")

    assert wheres([thought]) == ["messages[0].reasoning"]


def test_a_signature_of_other_thinking_is_not_written() -> None:
    parts = [
        {"type": "thinking", "thinking": "a", "signature": "1"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    (message,) = from_anthropic([{"role": "assistant", "content": parts}])

    changed = message.model_copy(update={"reasoning": "b"})

    assert wheres([changed]) == ["messages[0].reasoning", "messages[0].anthropic"]


def test_tool_results_of_one_turn_are_tool_messages_and_join_the_user_again() -> None:
    wire = [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "a", "is_error": True},
                {"type": "tool_result", "tool_use_id": "2", "content": "b"},
                {"type": "text", "text": "go on"},
            ],
        }
    ]

    messages = from_anthropic(wire)

    assert [message.role for message in messages] == ["tool", "tool", "user"]
    assert [message.text for message in messages] == ["a", "b", "go on"]
    assert to_anthropic(messages).exact().messages == wire


def test_neighbours_of_one_role_become_one_turn_and_that_is_reported() -> None:
    messages = [Message(role="user", content="a"), Message(role="user", content="b")]

    written = to_anthropic(messages)

    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert written.value.messages == [{"role": "user", "content": texts}]
    assert [loss.where for loss in written.dropped] == ["messages[1]"]


def test_a_system_message_in_mid_conversation_is_written_as_a_user_message() -> None:
    messages = [
        Message(role="user", content="a"),
        Message(role="assistant", content="b"),
        Message(role="system", content="be brief"),
    ]

    written = to_anthropic(messages)

    assert written.value.messages[2] == {"role": "user", "content": "be brief"}
    assert [(loss.where, loss.what) for loss in written.dropped] == [
        ("messages[2].role", "written as a user message")
    ]


def test_missing_ids_are_generated_alike_on_every_run_and_reported() -> None:
    calls = (ToolCall(name="f"), ToolCall(name="g"), ToolCall(id="toolu_0_0", name="h"))
    messages = [
        Message(role="assistant", tool_calls=calls),
        Message(role="tool", name="g", content="2"),
        Message(role="tool", content="1"),
    ]

    written = to_anthropic(messages)

    asked, answered = (turn["content"] for turn in written.value.messages)
    assert [block["id"] for block in asked] == ["toolu_0_0_", "toolu_0_1", "toolu_0_0"]
    assert [block["tool_use_id"] for block in answered] == ["toolu_0_1", "toolu_0_0_"]
    assert [loss.where for loss in written.dropped] == [
        "messages[0].tool_calls[0].id",
        "messages[0].tool_calls[1].id",
        "messages[1].tool_call_id",
        "messages[2].tool_call_id",
    ]
    assert written == to_anthropic(messages)


def test_an_empty_text_beside_a_call_is_left_out_and_reported() -> None:
    call = ToolCall(id="1", name="f")
    written = to_anthropic([Message(role="assistant", content="", tool_calls=(call,))])

    assert [block["type"] for block in written.value.messages[0]["content"]] == ["tool_use"]
    assert [loss.where for loss in written.dropped] == ["messages[0].content"]


def test_an_image_keeps_its_address_and_reports_the_detail_setting() -> None:
    image = {"url": "data:image/png;base64,AAAA", "detail": "low"}
    message = Message(role="user", content=(data_block(type="image_url", image_url=image),))

    written = to_anthropic([message])

    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert written.value.messages[0]["content"] == [{"type": "image", "source": source}]
    assert [loss.where for loss in written.dropped] == ["messages[0].content[0].image_url.detail"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "data:text/plain,hello", ""])
def test_an_image_that_anthropic_cannot_be_given_is_reported(url: str) -> None:
    block = data_block(type="image_url", image_url={"url": url})

    assert wheres([Message(role="user", content=(block,))]) == ["messages[0].content[0]"]


def test_a_turn_changed_since_it_was_read_is_written_as_it_is_now() -> None:
    blocks = [
        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
        {"type": "text", "text": "after"},
    ]
    (message,) = from_anthropic([{"role": "assistant", "content": blocks}])

    chat = to_anthropic([message.model_copy(update={"content": "before"})]).exact()

    assert chat.messages[0]["content"] == [{"type": "text", "text": "before"}, blocks[0]]


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        (None, "messages[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "system", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": [5]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        (
            {"role": "user", "content": [{"type": "tool_result"}]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": 5}],
            },
            "messages[0].content[0].content",
        ),
        ({"role": "assistant", "content": [{"type": "tool_use"}]}, "messages[0].content[0].id"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f"}]},
            "messages[0].content[0].input",
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking"}]},
            "messages[0].content[0].thinking",
        ),
    ],
)
def test_wrong_types_are_refused_with_their_place(wire: Any, where: str) -> None:
    with pytest.raises(WireError) as caught:
        from_anthropic([wire])

    assert caught.value.where == where
    assert caught.value.hint


@pytest.mark.parametrize(("system", "where"), [(5, "system"), ([5], "system[0]")])
def test_a_system_prompt_of_a_wrong_type_is_refused(system: Any, where: str) -> None:
    with pytest.raises(WireError) as caught:
        from_anthropic([], system=system)

    assert caught.value.where == where


@given(st.sampled_from(["user", "assistant"]), values | st.lists(objects))
def test_any_json_is_read_or_refused(role: str, content: Any) -> None:
    with contextlib.suppress(WireError):
        from_anthropic([{"role": role, "content": content}])


def test_deep_nesting_does_not_crash() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    block = {"type": "tool_use", "id": "1", "name": "f", "input": deep}

    with pytest.raises(WireError, match=r"messages\[0\]: the value is nested too deeply"):
        from_anthropic([{"role": "assistant", "content": [block]}])


def test_a_result_that_joins_a_turn_leaves_its_original_unchanged() -> None:
    # Written back by its original, since an empty text is not written otherwise.
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    turn = {"role": "user", "content": [{"type": "text", "text": ""}, result]}
    read = from_anthropic([turn])
    joined = Message(role="tool", tool_call_id="u", content="y")

    first, second = (to_anthropic([*read, joined]).value.messages for _ in range(2))

    assert first == second
    assert [block.get("tool_use_id") for block in first[0]["content"]] == [None, "t", "u"]
    assert turn["content"] == [{"type": "text", "text": ""}, result]
