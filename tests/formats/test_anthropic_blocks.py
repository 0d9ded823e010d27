"""Single Anthropic blocks: what becomes a shared shape and what stays Anthropic's own."""

from typing import Any

import pytest

from assay.formats.anthropic_blocks import (
    join_thinking,
    read_anthropic_block,
    read_tool_result,
    write_anthropic_blocks,
)
from assay.formats.conversion import Dropped
from message_strategies import data_block, text_block


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "AA"}, "data:image/png;base64,AA"),
        ({"type": "url", "url": "https://example.org/a"}, "https://example.org/a"),
    ],
)
def test_an_image_becomes_an_image_part_and_back(source: dict[str, Any], url: str) -> None:
    wire = {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}

    block = read_anthropic_block(wire, "here")

    assert block == data_block(
        type="image_url",
        image_url={"url": url},
        anthropic={"cache_control": {"type": "ephemeral"}},
    )
    assert write_anthropic_blocks((block,), "here", []) == [wire]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "file", "file_id": "f"},
        {"type": "url", "url": "ftp://example.org/a"},
        {"type": "url", "url": "data:image/png;base64,AA"},
        {"type": "base64", "media_type": "image/png", "data": "AA", "more": 1},
        None,
    ],
)
def test_an_image_with_no_such_address_stays_as_it_came(source: object) -> None:
    wire = {"type": "image", "source": source}

    block = read_anthropic_block(wire, "here")

    assert block == data_block(type="image", anthropic={"source": source})
    assert write_anthropic_blocks((block,), "here", []) == [wire]


def test_a_part_of_another_format_is_reported() -> None:
    dropped: list[Dropped] = []

    written = write_anthropic_blocks(
        (text_block(text="a"), data_block(type="input_audio", input_audio={})), "m", dropped
    )

    assert written == [{"type": "text", "text": "a"}]
    assert [loss.where for loss in dropped] == ["m.content[1]"]


def test_a_result_keeps_what_only_anthropic_has() -> None:
    result = read_tool_result({"type": "tool_result", "tool_use_id": "1", "is_error": True}, "here")

    assert result.model_extra == {"anthropic": {"result": {"is_error": True}}}
    assert (result.content, result.tool_call_id) == (None, "1")


def test_redacted_thinking_says_nothing() -> None:
    assert join_thinking([{"type": "redacted_thinking", "data": "x"}]) is None
    assert join_thinking([{"thinking": "a"}, {"data": "x"}, {"thinking": "b"}]) == "a\n\nb"
