"""Stable ids: the same data has the same id in every process and on every machine."""

import hashlib
import json
from typing import Any

from pydantic_core import to_jsonable_python

# 80 bits: among ten million rows, the chance of a collision is under 1e-10.
_ID_LENGTH = 20
_STABLE_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, default=to_jsonable_python
)


def encode_stable_json(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII only."""
    return _STABLE_ENCODER.encode(value).encode("ascii")


def stable_id(value: Any) -> str:
    """Return a short digest of the canonical JSON of `value`."""
    return hashlib.sha256(encode_stable_json(value)).hexdigest()[:_ID_LENGTH]
