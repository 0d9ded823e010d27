"""Messages: what they read, what they keep, and what they say."""

import pytest
from pydantic import ValidationError

from assay.types import DataBlock, Message, TextBlock, ToolCall
from make import called, said


def test_reads_an_openai_tool_call_whose_arguments_are_a_json_string() -> None:
    message = Message.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "lookup", "arguments": '{"order":"66"}'},
                }
            ],
        }
    )

    assert message.tool_calls == (called("lookup", order="66"),)


def test_reads_a_hugging_face_tool_call_whose_arguments_are_an_object() -> None:
    call = ToolCall.model_validate(
        {"type": "function", "function": {"name": "lookup", "arguments": {"order": "66"}}}
    )

    assert call == ToolCall(name="lookup", arguments={"order": "66"})


def test_keeps_what_else_stood_in_a_foreign_tool_call() -> None:
    call = ToolCall.model_validate(
        {"id": "1", "type": "mcp", "index": 3, "function": {"name": "f", "strict": True}}
    )

    assert call.model_extra == {"type": "mcp", "index": 3, "function": {"strict": True}}


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"a":1.0e2}', '{"a":1,"a":2}', ' {"a":1}', '{"a":"\\u00e9"}']
)
def test_keeps_the_models_own_spelling_of_its_arguments(text: str) -> None:
    call = ToolCall(name="f", arguments=text)

    assert call.arguments_text == text
    assert call.arguments.keys() == {"a"}
    assert not call.malformed


@pytest.mark.parametrize(
    "text",
    ["not json", '{"a":1', "[1]", "null", '{"a":NaN}', '{"a":1e999}', "[" * 9999, '"\\ud800"'],
)
def test_arguments_that_are_no_json_object_are_kept_and_called_malformed(text: str) -> None:
    call = ToolCall(name="f", arguments=text)

    assert call.malformed
    assert call.arguments == {}
    assert call.arguments_text == text
    assert ToolCall.model_validate_json(call.model_dump_json()) == call


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_blank_arguments_are_no_arguments(text: str) -> None:
    call = ToolCall(name="f", arguments=text)

    assert not call.malformed
    assert call.arguments == {}
    assert call.arguments_text == text
    assert ToolCall.model_validate_json(call.model_dump_json()) == call


def test_text_joins_the_text_blocks_and_leaves_the_others_out() -> None:
    message = Message(
        role="user",
        content=(
            TextBlock(type="text", text="Look: "),
            DataBlock.model_validate({"type": "image_url", "image_url": {"url": "data:,"}}),
            TextBlock(type="text", text="a cat."),
        ),
    )

    assert message.text == "Look: a cat."


def test_a_text_block_without_text_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"text\n  Field required"):
        Message.model_validate({"role": "user", "content": [{"type": "text"}]})


@pytest.mark.parametrize("content", [None, ()])
def test_a_message_without_content_says_nothing(content: None) -> None:
    assert Message(role="assistant", content=content).text == ""


def test_nulls_of_foreign_shapes_are_empty() -> None:
    message = Message.model_validate(
        {"role": "user", "content": "hi", "tool_calls": None, "metadata": None}
    )

    assert message == Message(role="user", content="hi")


def test_reasoning_content_is_another_spelling_of_reasoning() -> None:
    message = Message.model_validate({"role": "assistant", "reasoning_content": "hm"})

    assert message.reasoning == "hm"
    assert message.to_dict() == {"role": "assistant", "reasoning": "hm"}


def test_half_an_emoji_becomes_a_replacement_character() -> None:
    message = Message(role="assistant", content="cut \ud83d")

    assert message.content == "cut �"
    assert Message.from_json(message.to_json()) == message


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        said("hello").content = "bye"  # type: ignore[misc]  # that is the point


def test_unknown_fields_survive() -> None:
    written = '{"role":"assistant","content":"no","refusal":"I will not","x":{"deep":[1,null]}}'

    assert Message.from_json(written).to_json() == written


def test_a_tool_call_is_read_as_openai_nests_it() -> None:
    function = {"name": "look", "arguments": '{"at": "door"}', "strict": True}
    call = ToolCall.model_validate({"id": "1", "type": "function", "function": function})

    assert (call.function.name, call.function.arguments) == ("look", '{"at": "door"}')
    assert ToolCall.model_validate_json(call.model_dump_json()) == call
