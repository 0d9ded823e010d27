"""A text of any length as numbered short strings: compressed, checked, and bounded on the way back.

The first string begins with `z1.<checksum>.<how many>.`; what follows, joined, is zlib in base85.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping

LONGEST_PAIR = 512
LARGEST_UNPACKED = 4 << 20
"""Bytes. The few kilobytes that metadata holds could otherwise unpack to seven million."""

_MOST = 16
_HEADER = re.compile(r"z1\.([0-9a-f]{16})\.([0-9]{2})\.")
_HEADER_SIZE = len("z1.0123456789abcdef.01.")


def pack(text: str, *, covering: str) -> list[str]:
    """`text` as strings of at most 512 ASCII characters, numbered from 1 by whoever stores them.

    The checksum covers `covering` as well, which must be the same when they are unpacked.
    """
    payload = base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")
    count = -(-(_HEADER_SIZE + len(payload)) // LONGEST_PAIR)
    whole = f"z1.{_checksum(text, covering)}.{count:02d}.{payload}"
    return [whole[start : start + LONGEST_PAIR] for start in range(0, len(whole), LONGEST_PAIR)]


def unpack(pairs: Mapping[str, str], *, covering: str) -> str:
    """The text that was packed, from strings by number. `ValueError` says what is wrong."""
    header = _HEADER.match(_pair(pairs, 1))
    if header is None:
        raise ValueError("the first has no header")
    count = int(header[2])
    if count > _MOST:
        raise ValueError(f"{count} are announced")
    whole = "".join(_pair(pairs, number) for number in range(1, count + 1))
    if len(pairs) != count:
        raise ValueError(f"{count} are announced, {len(pairs)} are there")
    text = _inflate(base64.b85decode(whole[_HEADER_SIZE:])).decode()
    if _checksum(text, covering) != header[1]:
        raise ValueError("the checksum does not match")
    return text


def _pair(pairs: Mapping[str, str], number: int) -> str:
    pair = pairs.get(str(number))
    if not isinstance(pair, str) or len(pair) > LONGEST_PAIR:
        raise ValueError(f"number {number} is missing or not a short string")
    return pair


def _inflate(packed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, LARGEST_UNPACKED + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) > LARGEST_UNPACKED:
        raise ValueError(f"they unpack to more than {LARGEST_UNPACKED} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("they are cut short or too long")
    return data


def _checksum(text: str, covering: str) -> str:
    own = hashlib.sha256(text.encode()).digest()
    return hashlib.sha256(own + covering.encode()).hexdigest()[:16]
