"""The header of a GGUF file: its chat template, and files that are none."""

import struct
from pathlib import Path

import pytest

from assay.providers.gguf_header import read_chat_template


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def string(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", 8) + text(value)


def header(*pairs: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + b"".join(pairs)


def test_the_template_for_tools_is_taken_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(
        header(
            string("tokenizer.chat_template", "plain"),
            text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            string("tokenizer.chat_template.tool_use", "tools"),
        )
    )

    assert read_chat_template(file, tools=True) == "tools"
    assert read_chat_template(file, tools=False) == "plain"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        header()[:-4],
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60),
        header(text("key") + struct.pack("<I", 99)),
        header(text("key") + struct.pack("<IIQ", 9, 8, 2**60)),
        header(text("key") + struct.pack("<IIQ", 9, 9, 1)),
        header(struct.pack("<Q", 2**60)),
        header(text("tokenizer.chat_template") + struct.pack("<IQ", 8, 2**60)),
    ],
)
def test_a_header_that_cannot_be_read_has_no_template(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(data)

    assert read_chat_template(file, tools=True) == ""
    assert read_chat_template(tmp_path / "none.gguf", tools=True) == ""
