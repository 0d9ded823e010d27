"""Read the chat templates from the header of a GGUF file, without the weights."""

import mmap
import struct
from pathlib import Path

_LENGTH = struct.Struct("<Q")
_VALUE_TYPE = struct.Struct("<I")
_FILE_HEADER = struct.Struct("<4sIQQ")
# Bytes of a value by its type in the GGUF format; the other two types are strings and arrays.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_TEMPLATE_KEY = b"tokenizer.chat_template"
_TOOL_TEMPLATE_KEY = b"tokenizer.chat_template.tool_use"


def read_chat_template(path: Path, *, tools: bool) -> str:
    """Return the chat template that llama.cpp uses with or without tools; empty if missing."""
    found: dict[bytes, bytes] = {}
    # An invalid header counts as one without a template: loading it reports the error.
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < _FILE_HEADER.size:
                return ""
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _, _, _, count = _FILE_HEADER.unpack_from(data, 0)
                at = _FILE_HEADER.size
                for _ in range(count):
                    key, at = _read_string(data, at)
                    (kind,) = _VALUE_TYPE.unpack_from(data, at)
                    at += _VALUE_TYPE.size
                    if kind == _STRING and key in (_TEMPLATE_KEY, _TOOL_TEMPLATE_KEY):
                        found[key], at = _read_string(data, at)
                    else:
                        at = _skip_value(data, at, kind)
    except (OSError, struct.error, ValueError, KeyError):
        return ""
    plain = found.get(_TEMPLATE_KEY, b"")
    return (found.get(_TOOL_TEMPLATE_KEY, plain) if tools else plain).decode("utf-8", "replace")


def _read_string(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    start = at + _LENGTH.size
    if start + length > len(data):
        raise ValueError("a string is longer than the file")
    return data[start : start + length], start + length


def _skip_value(data: mmap.mmap, at: int, kind: int) -> int:
    if kind == _STRING:
        (length,) = _LENGTH.unpack_from(data, at)
        return int(at + _LENGTH.size + length)
    if kind != _ARRAY:
        return at + _SIZES[kind]
    (inner,) = _VALUE_TYPE.unpack_from(data, at)
    (count,) = _LENGTH.unpack_from(data, at + _VALUE_TYPE.size)
    at += _VALUE_TYPE.size + _LENGTH.size
    if inner != _STRING:
        return int(at + _SIZES[inner] * count)
    # The vocabulary has hundreds of thousands of strings, so the loop avoids calls.
    unpack, size = _LENGTH.unpack_from, _LENGTH.size
    for _ in range(count):
        at += size + unpack(data, at)[0]
    return at
