"""A text of any length as numbered short strings: compressed, checked, and bounded on the way back.

The first string begins with `z1.<checksum>.<how many>.`; what follows, joined, is zlib in base85.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping

MAX_PAIR_LENGTH = 512
MAX_UNPACKED_BYTES = 4 << 20
"""Bytes. The few kilobytes that metadata holds could otherwise unpack to seven million."""

_MAX_OVERFLOW_PAIRS = 16
_HEADER_PATTERN = re.compile(r"z1\.([0-9a-f]{16})\.([0-9]{2})\.")
_HEADER_LENGTH = len("z1.0123456789abcdef.01.")


def pack_overflow(text: str, *, covering: str) -> list[str]:
    """`text` as strings of at most 512 ASCII characters, numbered from 1 by whoever stores them.

    The checksum covers `covering` as well, which must be the same when they are unpacked.
    """
    payload = base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")
    count = -(-(_HEADER_LENGTH + len(payload)) // MAX_PAIR_LENGTH)
    whole = f"z1.{_compute_checksum(text, covering)}.{count:02d}.{payload}"
    return [
        whole[start : start + MAX_PAIR_LENGTH] for start in range(0, len(whole), MAX_PAIR_LENGTH)
    ]


def unpack_overflow(pairs: Mapping[str, str], *, covering: str) -> str:
    """The text that was packed, from strings by number. `ValueError` says what is wrong."""
    header = _HEADER_PATTERN.match(_read_pair(pairs, 1))
    if header is None:
        raise ValueError("the first has no header")
    count = int(header[2])
    if count > _MAX_OVERFLOW_PAIRS:
        raise ValueError(f"{count} are announced")
    whole = "".join(_read_pair(pairs, number) for number in range(1, count + 1))
    if len(pairs) != count:
        raise ValueError(f"{count} are announced, {len(pairs)} are there")
    text = _inflate(base64.b85decode(whole[_HEADER_LENGTH:])).decode()
    if _compute_checksum(text, covering) != header[1]:
        raise ValueError("the checksum does not match")
    return text


def _read_pair(pairs: Mapping[str, str], number: int) -> str:
    pair = pairs.get(str(number))
    if not isinstance(pair, str) or len(pair) > MAX_PAIR_LENGTH:
        raise ValueError(f"number {number} is missing or not a short string")
    return pair


def _inflate(packed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, MAX_UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise ValueError(f"they unpack to more than {MAX_UNPACKED_BYTES} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("they are cut short or too long")
    return data


def _compute_checksum(text: str, covering: str) -> str:
    own = hashlib.sha256(text.encode()).digest()
    return hashlib.sha256(own + covering.encode()).hexdigest()[:16]
