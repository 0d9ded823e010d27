"""Messages of Bedrock's Converse API, read and written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats.bedrock import from_bedrock, to_bedrock
from assay.types import DataBlock, Message, TextBlock, ToolCall
from message_strategies import any_messages, objects, unreported, words

THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
IMAGE = {"image": {"format": "png", "source": {"bytes": "AAAA"}}}
STORED = {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/a.jpg"}}}}
DOCUMENT = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AAAA"}}}
USE = {"toolUse": {"toolUseId": "t1", "name": "add", "input": {"a": 1}}}


def result(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": "t1", "content": list(content), **more}}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    "turns",
    [
        [user({"text": "Hi."}), assistant({"text": "Hello."})],
        [user({"text": "a"}, IMAGE, {"text": "b"})],
        [user(STORED), assistant({"text": "x"})],
        [user({"text": "a"}, DOCUMENT, {"cachePoint": {"type": "default"}})],
        [user({"text": "2 + 3?"}), assistant(THOUGHT, {"text": "I add."}, USE)],
        [assistant(USE), user(result({"text": "3"}, status="error"), {"text": "Go on."})],
        [assistant(USE), user(result({"json": {"bytes": "x"}}, IMAGE))],
        [assistant({"text": "a"}, THOUGHT, {"text": "b"}, USE, {"text": "c"})],
        [assistant({"reasoningContent": {"redactedContent": "AAAA"}}, USE)],
        [assistant({"toolUse": {**USE["toolUse"], "type": "server_tool_use"}})],
    ],
)
def test_turns_are_restored_exactly(turns: list[dict[str, Any]]) -> None:
    read = from_bedrock(turns, system=[{"text": "Be brief."}])

    written = to_bedrock(Message.from_json(each.to_json()) for each in read)

    assert written.exact().messages == turns
    assert written.exact().system == [{"text": "Be brief."}]


@given(texts=st.lists(words, max_size=4), arguments=objects)
def test_any_text_and_arguments_are_restored(texts: list[str], arguments: dict[str, Any]) -> None:
    blocks: list[dict[str, Any]] = [{"text": text} for text in texts if text.strip()]
    use = {"toolUse": {"toolUseId": "t", "name": "f", "input": arguments}}
    turns = [user({"text": "?"}), assistant(*blocks, use)]

    assert to_bedrock(from_bedrock(turns)).exact().messages == turns


def test_a_message_has_the_fields_of_every_other_format() -> None:
    [message, tool] = from_bedrock(
        [assistant(THOUGHT, {"text": "I add."}, USE), user(result({"text": "3"}))]
    )

    assert (message.reasoning, message.text) == ("Hm.", "I add.")
    assert message.tool_calls == (ToolCall(id="t1", name="add", arguments={"a": 1}),)
    assert (tool.role, tool.text, tool.tool_call_id) == ("tool", "3", "t1")


def test_neighbours_of_one_role_become_one_turn() -> None:
    messages = [
        Message(role="user", content="a"),
        Message(role="user", content="b"),
        Message(
            role="assistant", tool_calls=(ToolCall(id="1", name="f"), ToolCall(id="2", name="g"))
        ),
        Message(role="tool", content="x", tool_call_id="1"),
        Message(role="tool", content="y", tool_call_id="2"),
        Message(role="user", content="c"),
    ]

    written = to_bedrock(messages)

    roles = [(turn["role"], len(turn["content"])) for turn in written.value.messages]
    assert roles == [("user", 2), ("assistant", 2), ("user", 3)]
    # Read back, the first two are one message, and the results are messages of their own.
    assert [(loss.where, loss.what) for loss in written.dropped] == [
        ("messages[1]", "joined to the user message before it")
    ]


@given(st.lists(any_messages(), max_size=5))
def test_nothing_is_lost_without_a_report(messages: list[Message]) -> None:
    written = to_bedrock(messages)

    back = from_bedrock(written.value.messages, system=written.value.system)
    assert unreported(messages, back, written.dropped) == []


def test_calls_without_ids_get_some_and_results_find_them() -> None:
    messages = [
        Message(role="assistant", tool_calls=(ToolCall(name="f"), ToolCall(name="g"))),
        Message(role="tool", content="y", name="g"),
    ]

    written = to_bedrock(messages)

    [called, answered] = written.value.messages
    assert [block["toolUse"]["toolUseId"] for block in called["content"]] == [
        "call_0_0",
        "call_0_1",
    ]
    assert answered["content"][0]["toolResult"]["toolUseId"] == "call_0_1"
    assert len(written.dropped) == 3


def test_blank_text_and_unsigned_reasoning_are_not_sent_back() -> None:
    unsigned = {"reasoningContent": {"reasoningText": {"text": "Hm."}}}
    [message] = from_bedrock([assistant(unsigned, {"text": "\n\n"}, USE)])

    written = to_bedrock([message])

    assert message.reasoning == "Hm."
    assert written.value.messages == [assistant(USE)]
    assert {loss.what for loss in written.dropped} == {
        "Bedrock accepts reasoning only with its signature; left out",
        "blank text is not accepted; left out",
    }


def test_edited_reasoning_loses_its_signature() -> None:
    [message] = from_bedrock([assistant(THOUGHT, {"text": "Hi."})])

    written = to_bedrock([message.model_copy(update={"reasoning": "Other."})])

    assert written.value.messages == [assistant({"text": "Hi."})]
    assert written.dropped[0].where == "messages[0].reasoning"


def test_an_edited_answer_is_written_as_it_is_now() -> None:
    [message] = from_bedrock([assistant({"text": "a"}, USE, {"text": "b"})])
    assert (message.model_extra or {})["spelling"]

    written = to_bedrock([message.model_copy(update={"content": "c"})])

    assert written.value.messages == [assistant({"text": "c"}, USE)]


@pytest.mark.parametrize("url", ["https://example.org/a.png", "data:image/tiff;base64,AAAA", "x"])
def test_an_image_that_bedrock_cannot_take_is_reported(url: str) -> None:
    image = DataBlock.model_validate({"type": "image_url", "image_url": {"url": url}})

    written = to_bedrock([Message(role="user", content=(TextBlock(text="a"), image))])

    assert written.value.messages == [user({"text": "a"})]
    assert "no block for this `image_url`" in written.dropped[0].what


def test_roles_that_bedrock_lacks_are_written_as_others() -> None:
    messages = [
        Message(role="developer", content="a"),
        Message(role="user", content="b"),
        Message(role="system", content="c"),
    ]

    written = to_bedrock(messages)

    assert written.value.system == [{"text": "a"}]
    assert written.value.messages == [user({"text": "b"}, {"text": "c"})]
    assert [loss.where for loss in written.dropped] == [
        "messages[0].role",
        "messages[2].role",
        "messages[2]",
    ]


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        ({"role": "system", "content": []}, "role"),
        ({"role": "user", "content": "text"}, "content"),
        ({"role": "user", "content": [{"text": 3}]}, "text"),
        ({"role": "user", "content": [{"toolResult": {"content": []}}]}, "toolUseId"),
        ({"role": "assistant", "content": [{"toolUse": {"toolUseId": "t"}}]}, "name"),
        ({"role": "assistant", "content": [{"reasoningContent": 3}]}, "reasoningContent"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(wire: dict[str, Any], where: str) -> None:
    with pytest.raises(WireError) as no:
        from_bedrock([wire])

    assert where in (no.value.where or "")
