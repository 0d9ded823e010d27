"""Packs a text into numbered short strings, compressed and with a checksum.

The first string begins with `z1.<checksum>.<count>.`; the rest, joined, is zlib in base85.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping

MAX_PAIR_LENGTH = 512
# Guards against zip bombs: 16 strings of 512 characters could unpack to seven million bytes.
MAX_UNPACKED_BYTES = 4 << 20

_MAX_OVERFLOW_PAIRS = 16
_HEADER_PATTERN = re.compile(r"z1\.([0-9a-f]{16})\.([0-9]{2})\.")
_HEADER_LENGTH = len("z1.0123456789abcdef.01.")


def pack_overflow(text: str, *, covering: str) -> list[str]:
    """Return `text` as strings of at most 512 ASCII characters; the caller numbers them from 1.

    The checksum also covers `covering`, which must be the same when they are unpacked.
    """
    payload = base64.b85encode(zlib.compress(text.encode(), 9)).decode("ascii")
    count = -(-(_HEADER_LENGTH + len(payload)) // MAX_PAIR_LENGTH)
    whole = f"z1.{_compute_checksum(text, covering)}.{count:02d}.{payload}"
    return [
        whole[start : start + MAX_PAIR_LENGTH] for start in range(0, len(whole), MAX_PAIR_LENGTH)
    ]


def unpack_overflow(pairs: Mapping[str, str], *, covering: str) -> str:
    """Return the packed text from strings by number. Raises `ValueError` for damaged ones."""
    header = _HEADER_PATTERN.match(_read_pair(pairs, 1))
    if header is None:
        raise ValueError("string 1 has no header")
    count = int(header[2])
    if count > _MAX_OVERFLOW_PAIRS:
        raise ValueError(f"{count} strings are announced, at most {_MAX_OVERFLOW_PAIRS} are valid")
    whole = "".join(_read_pair(pairs, number) for number in range(1, count + 1))
    if len(pairs) != count:
        raise ValueError(f"{count} strings are announced, {len(pairs)} are present")
    inflater = zlib.decompressobj()
    try:
        packed = base64.b85decode(whole[_HEADER_LENGTH:])
        data = inflater.decompress(packed, MAX_UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise ValueError(f"the strings unpack to more than {MAX_UNPACKED_BYTES} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the compressed data is truncated or too long")
    text = data.decode()
    if _compute_checksum(text, covering) != header[1]:
        raise ValueError("the checksum does not match")
    return text


def _read_pair(pairs: Mapping[str, str], number: int) -> str:
    pair = pairs.get(str(number))
    if not isinstance(pair, str) or len(pair) > MAX_PAIR_LENGTH:
        raise ValueError(f"string {number} is missing or not a short string")
    return pair


def _compute_checksum(text: str, covering: str) -> str:
    own = hashlib.sha256(text.encode()).digest()
    return hashlib.sha256(own + covering.encode()).hexdigest()[:16]
