"""Stable names for data: the same row has the same id tomorrow and on another machine."""

import hashlib
import json
from typing import Any

from pydantic_core import to_jsonable_python

_ID_LENGTH = 20
"""80 bits: among ten million rows the chance of one accidental collision is under 1e-10."""

_STABLE_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, default=to_jsonable_python
)


def encode_stable_json(value: Any) -> bytes:
    """One spelling for equal values: sorted keys, no spaces, ASCII only."""
    return _STABLE_ENCODER.encode(value).encode("ascii")


def stable_id(value: Any) -> str:
    """A short digest of the canonical form of `value`."""
    return hashlib.sha256(encode_stable_json(value)).hexdigest()[:_ID_LENGTH]
