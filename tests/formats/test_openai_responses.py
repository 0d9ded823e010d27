"""Items of the Responses API: which of them are one message, and what is reported."""

from typing import Any

import pytest

from assay.formats.conversion import Converted, Dropped
from assay.formats.openai_responses import (
    read_responses_answer,
    read_responses_items,
    to_openai_responses,
)
from assay.types import Message, ToolCall
from message_strategies import data_block, text_block


def said(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "m", "content": [part], **fields}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def called(call_id: str, **fields: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
    return {**call, "id": f"fc_{call_id}", "status": "completed", **fields}


def answered(call_id: str, output: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def read(*items: Any) -> list[Message]:
    dropped: list[Dropped] = []
    messages = read_responses_items(items, dropped)
    assert dropped == []
    return messages


def shape(messages: list[Message]) -> list[tuple[str, str, str | None, list[str | None]]]:
    return [
        (each.role, each.text, each.reasoning, [call.id for call in each.tool_calls])
        for each in messages
    ]


def test_reasoning_text_and_calls_of_one_answer_are_one_message() -> None:
    messages = read(
        {"role": "user", "content": "Go."},
        *(thought("one"), thought("two"), said("Look."), called("a"), called("b")),
        *(answered("a"), answered("b")),
        said("Done."),
    )

    assert shape(messages) == [
        ("user", "Go.", None, []),
        ("assistant", "Look.", "one\n\ntwo", ["a", "b"]),
        ("tool", "ok", None, []),
        ("tool", "ok", None, []),
        ("assistant", "Done.", None, []),
    ]
    assert [(each.tool_call_id, each.name) for each in messages[2:4]] == [("a", "f"), ("b", "f")]


def test_a_comment_and_the_final_answer_stay_apart() -> None:
    messages = read(said("Working.", phase="commentary"), said("42", phase="final_answer"))

    assert [message.content for message in messages] == ["Working.", "42"]
    assert messages[1].details == {"id": "m", "phase": "final_answer"}


def test_text_beside_open_calls_belongs_to_them() -> None:
    messages = read(called("a"), said("Meanwhile."), answered("a"))

    assert shape(messages) == [
        ("assistant", "Meanwhile.", None, ["a"]),
        ("tool", "ok", None, []),
    ]


def test_malformed_arguments_and_custom_input_are_kept() -> None:
    custom = {"type": "custom_tool_call", "call_id": "b", "name": "sql", "input": "SELECT 1"}

    (message,) = read(called("a", arguments="{oops"), custom)

    assert [(call.name, call.raw_arguments) for call in message.tool_calls] == [
        ("f", "{oops"),
        ("sql", "SELECT 1"),
    ]
    assert message.tool_calls[1].model_extra == {"type": "custom"}


def test_encrypted_reasoning_is_kept_in_details() -> None:
    item = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "abc"}

    (message,) = read(item, said("Hi."))

    assert message.reasoning is None
    assert message.details == {"reasoning_items": [item], "id": "m"}


@pytest.mark.parametrize(
    ("item", "name", "arguments", "content", "failed"),
    [
        (
            {"type": "web_search_call", "id": "s", "status": "completed"}
            | {"action": {"type": "search", "query": "oslo"}},
            *("web_search", {"type": "search", "query": "oslo"}, None, False),
        ),
        (
            {"type": "file_search_call", "id": "s", "queries": ["a"], "results": [{"text": "b"}]},
            *("file_search", {"queries": ["a"]}, '[{"text":"b"}]', False),
        ),
        (
            {"type": "mcp_call", "id": "s", "name": "find", "server_label": "shop"}
            | {"arguments": '{"a":1}', "output": "found", "error": None},
            *("shop.find", {"a": 1}, "found", False),
        ),
        (
            {"type": "mcp_call", "id": "s", "name": "find", "server_label": "shop"}
            | {"arguments": "{}", "output": None, "error": {"code": 1}},
            *("shop.find", {}, '{"code":1}', True),
        ),
        (
            {"type": "code_interpreter_call", "id": "s", "code": "1+1", "container_id": "c"}
            | {"outputs": [{"type": "logs", "logs": "2"}], "status": "failed"},
            *("code_interpreter", {"code": "1+1", "container_id": "c"}),
            *('[{"type":"logs","logs":"2"}]', True),
        ),
    ],
)
def test_a_tool_of_the_server_is_called_and_answered(
    item: dict[str, Any],
    name: str,
    arguments: dict[str, Any],
    content: str | None,
    failed: bool,
) -> None:
    call, answer, after = read(item, said("After."))

    assert [(each.id, each.name, each.arguments) for each in call.tool_calls] == [
        ("s", name, arguments)
    ]
    assert (answer.role, answer.tool_call_id, answer.content) == ("tool", "s", content)
    assert answer.details is not None
    assert answer.details["failed"] is failed
    assert ("recorded" in answer.details) is (content is None)
    assert after.text == "After."


def test_an_image_that_the_server_made_is_an_image() -> None:
    item = {"type": "image_generation_call", "id": "s", "result": "AAAA", "output_format": "webp"}

    _, answer = read(item)

    url = "data:image/webp;base64,AAAA"
    assert answer.content == (data_block(type="image_url", image_url={"url": url}),)


@pytest.mark.parametrize(
    ("item", "content"),
    [
        (answered("a", [{"type": "input_text", "text": "x"}]), "x"),
        (answered("a", {"sky": "rain"}), '{"sky":"rain"}'),
        ({"type": "local_shell_call_output", "id": "a", "output": "ls"}, "ls"),
        (
            {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x"}]},
            '[{"stdout":"x"}]',
        ),
    ],
)
def test_outputs_of_all_kinds_answer_their_call(item: dict[str, Any], content: str) -> None:
    (message,) = read(item)

    assert (message.role, message.tool_call_id, message.content) == ("tool", "a", content)


def test_a_failed_output_is_marked() -> None:
    (message,) = read({"type": "apply_patch_call_output", "call_id": "a", "status": "failed"})

    assert message.details == {"status": "error", "failed": True, "is_error": True}


def test_images_files_and_refusals_are_kept() -> None:
    parts = [
        {"type": "input_text", "text": "See."},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,"},
    ]
    refusal = {"type": "refusal", "refusal": "No."}

    asked, refused = read(
        {"role": "user", "content": parts},
        {"type": "message", "role": "assistant", "content": [refusal]},
    )

    image = {"url": "https://example.org/a.png", "detail": "low"}
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,"}
    assert asked.content == (
        text_block(text="See."),
        data_block(type="image_url", image_url=image),
        data_block(type="file", file=file),
    )
    assert refused.model_extra == {"refusal": "No."}


def test_citations_are_beside_the_content_as_in_chat() -> None:
    citation = {"type": "url_citation", "url": "https://example.org"}
    part = {"type": "output_text", "text": "Rain.", "annotations": [citation]}

    (message,) = read({"type": "message", "role": "assistant", "content": [part, part]})

    assert message.model_extra == {"annotations": [citation, citation]}


def test_unknown_items_parts_and_fields_are_reported() -> None:
    dropped: list[Dropped] = []

    messages = read_responses_items(
        [
            "text",
            {"type": "compaction", "encrypted_content": "x"},
            {"type": "message", "role": "user", "content": [{"type": "hologram"}], "mood": "good"},
            called("a", namespace="shop"),
            {"type": "function_call", "call_id": "b"},
            {"type": "function_call", "call_id": "c", "name": 5},
        ],
        dropped,
    )

    assert [message.role for message in messages] == ["user", "assistant"]
    assert dropped == [
        Dropped("items[0]", "a value of type str; left out"),
        Dropped("items[1]", "an item of type 'compaction'; left out"),
        Dropped("items[2].mood", "no place for `mood`; left out"),
        Dropped("items[2].content[0]", "a part of type 'hologram'; left out"),
        Dropped("items[3].namespace", "no place for `namespace`; left out"),
        *(
            Dropped(
                f"items[{index}]",
                "unreadable: the data cannot be read as a ToolCall: Input should be a valid "
                "string; left out",
            )
            for index in (4, 5)
        ),
    ]


def test_items_that_are_written_are_read_as_the_same_messages() -> None:
    image = data_block(type="image_url", image_url={"url": "https://host/a.png", "detail": "low"})
    messages = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=(text_block(text="Look."), image)),
        Message(role="assistant", content="Both.", tool_calls=(call("a"), call("b", "not JSON"))),
        Message(role="tool", content="1", tool_call_id="a", name="f"),
        Message(role="tool", content="2", tool_call_id="b", name="f"),
        Message(role="assistant", content="Done."),
    ]

    written = to_openai_responses(messages)

    assert written.dropped == ()
    assert read(*written.value) == messages


def test_an_answer_is_written_as_its_own_items() -> None:
    items = [{**thought("one"), "encrypted_content": "x"}, said("Look."), called("a")]

    message = read_responses_answer(items, [])

    assert to_openai_responses([message]) == Converted(items)


def test_calls_without_ids_are_paired_with_their_outputs() -> None:
    messages = [
        Message(role="assistant", tool_calls=(ToolCall(name="f", arguments={}),)),
        Message(role="tool", content="ok"),
    ]

    request, output = to_openai_responses(messages).value

    assert request["call_id"] == output["call_id"]


def test_blocks_without_a_part_are_reported() -> None:
    message = Message(role="user", content=(data_block(type="video", url="x"),))

    written = to_openai_responses([message])

    assert written.dropped == (
        Dropped("messages[0].content[0]", "a block of type 'video'; left out"),
    )


def call(call_id: str, arguments: str = '{"a":1}') -> ToolCall:
    return ToolCall.model_validate({"id": call_id, "name": "f", "arguments": arguments})
