"""Text in numbered strings: restored exactly, or refused with what is wrong."""

import base64
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.types.overflow_pairs import MAX_UNPACKED_BYTES, pack_overflow, unpack_overflow

NOISE = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(40))


def numbered(pairs: list[str]) -> dict[str, str]:
    return {str(number): pair for number, pair in enumerate(pairs, start=1)}


def forged(squeezed: bytes) -> dict[str, str]:
    """Strings as `pack_overflow` writes them, with this payload and a wrong checksum."""
    payload = base64.b85encode(squeezed).decode()
    count = -(-(23 + len(payload)) // 512)
    whole = f"z1.0123456789abcdef.{count:02d}.{payload}"
    return numbered([whole[start : start + 512] for start in range(0, len(whole), 512)])


@given(st.text(), st.integers(1, 300), st.text())
def test_any_text_is_restored_from_short_ascii_strings(
    piece: str, times: int, covering: str
) -> None:
    pairs = pack_overflow(piece * times, covering=covering)

    assert all(len(pair) <= 512 and pair.isascii() for pair in pairs)
    assert unpack_overflow(numbered(pairs), covering=covering) == piece * times


def test_what_compresses_well_needs_few_strings() -> None:
    assert len(pack_overflow("step " * 100_000, covering="")) <= 4


WHOLE = numbered(pack_overflow(NOISE, covering="c"))
LAST = str(len(WHOLE))


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ({}, "string 1 is missing"),
        ({n: pair for n, pair in WHOLE.items() if n != "2"}, "string 2 is missing"),
        ({n: pair for n, pair in WHOLE.items() if n != LAST}, f"string {LAST} is missing"),
        ({**WHOLE, "99": "x"}, "strings are announced, "),
        ({**WHOLE, "1": "x"}, "no header"),
        ({**WHOLE, "1": "z1.0123456789abcdef.17."}, "17 strings are announced"),
        ({**WHOLE, "1": "z1.0123456789abcdef.00."}, "0 strings are announced"),
        ({**WHOLE, "2": "x" * 513}, "not a short string"),
        ({**WHOLE, "2": "é" * 512}, "ASCII"),
        ({**WHOLE, "2": " " * 512}, "bad base85"),
        ({**WHOLE, "2": "0" * 512}, "decompressing"),
        (forged(zlib.compress(NOISE.encode())[:-9]), "is truncated"),
        (forged(zlib.compress(NOISE.encode()) + b"more"), "too long"),
        (forged(zlib.compress(b"\xff")), "can't decode"),
        (forged(zlib.compress(NOISE.encode())), "the checksum does not match"),
        (forged(zlib.compress(b" " * (MAX_UNPACKED_BYTES + 1), 9)), "unpack to more than"),
    ],
)
def test_damaged_strings_are_refused_with_the_reason(damaged: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack_overflow(damaged, covering="c")


def test_strings_packed_beside_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="the checksum does not match"):
        unpack_overflow(WHOLE, covering="d")
