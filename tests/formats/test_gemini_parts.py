"""Single Gemini parts: both spellings of keys, images, and what a function answered."""

from typing import Any

import pytest

from assay.formats.conversion import Dropped
from assay.formats.gemini_parts import (
    read_function_response,
    read_gemini_part,
    to_camel_part,
    write_function_response,
    write_gemini_parts,
)
from assay.types import Message
from message_strategies import data_block, text_block


def test_snake_case_becomes_camel_case_inside_and_out() -> None:
    snake = {"inline_data": {"mime_type": "image/png", "data": ""}, "thought_signature": "s"}
    camel = {"inlineData": {"mimeType": "image/png", "data": ""}, "thoughtSignature": "s"}

    assert to_camel_part(snake, "here") == camel


def test_a_key_in_both_spellings_is_left_as_it_is() -> None:
    both = {"file_data": 1, "fileData": 2}

    assert to_camel_part(both, "here") == both


def test_function_arguments_are_never_respelled() -> None:
    call = {"functionCall": {"name": "f", "args": {"mime_type": "x"}}}

    assert to_camel_part(call, "here") == call


@pytest.mark.parametrize(
    ("part", "url", "kept"),
    [
        ({"inlineData": {"mimeType": "image/png", "data": "A"}}, "data:image/png;base64,A", None),
        ({"fileData": {"mimeType": "image/png", "fileUri": "gs://b/a.png"}}, "gs://b/a.png", None),
        (
            {"fileData": {"mimeType": "image/webp", "fileUri": "gs://b/a"}},
            "gs://b/a",
            {"mimeType": "image/webp"},
        ),
    ],
)
def test_an_image_becomes_an_image_part_and_back(
    part: dict[str, Any], url: str, kept: dict[str, Any] | None
) -> None:
    block = read_gemini_part(part, "here")

    extra = {"gemini": kept} if kept else {}
    assert block == data_block(type="image_url", image_url={"url": url}, **extra)
    assert write_gemini_parts((block,), "here", []) == [part]


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "audio/wav", "data": "A"}},
        {"inlineData": {"mimeType": "image/png", "data": "A", "displayName": "x"}},
        {"inlineData": {"mimeType": "image/;odd", "data": "A"}},
        {"fileData": {"fileUri": "gs://b/a.png"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "data:image/png;base64,A"}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {},
    ],
)
def test_any_other_part_stays_as_it_came(part: dict[str, Any]) -> None:
    block = read_gemini_part(part, "here")

    assert block.model_extra == {"gemini": part}
    assert write_gemini_parts((block,), "here", []) == [part]


def test_a_part_of_another_format_is_reported() -> None:
    dropped: list[Dropped] = []

    assert write_gemini_parts((data_block(type="file", file={}),), "m", dropped) == []
    assert [loss.where for loss in dropped] == ["m.content[0]"]


def test_a_result_keeps_what_only_gemini_has() -> None:
    answer = {"name": "f", "response": {"output": "a"}, "willContinue": True}

    message = read_function_response({"functionResponse": answer, "thoughtSignature": "s"}, "here")

    assert message.content == "a"
    assert message.model_extra == {
        "gemini": {"result": {"keys": {"willContinue": True}, "part": {"thoughtSignature": "s"}}}
    }


@pytest.mark.parametrize(
    ("content", "response", "reported"),
    [
        (None, {}, []),
        ("a", {"output": "a"}, []),
        ((text_block(text="a"),), {"output": "a"}, []),
        ((text_block(text="a", note=1),), {"output": "a"}, ["m.content[0].note"]),
        ((text_block(text="a"), text_block(text="b")), {"output": "ab"}, ["m.content"]),
        ((data_block(type="file"),), {}, ["m.content[0]"]),
    ],
)
def test_a_response_is_the_text_wrapped(
    content: Any, response: dict[str, Any], reported: list[str]
) -> None:
    dropped: list[Dropped] = []

    assert (
        write_function_response(Message(role="tool", content=content), {}, "m", dropped) == response
    )
    assert [loss.where for loss in dropped] == reported
