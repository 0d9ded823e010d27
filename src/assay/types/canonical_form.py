"""JSON in the one form that everybody writes alike (RFC 8785), so that digests can be compared."""

import json
import math
from collections.abc import Mapping
from typing import Any

_LARGEST_INTEGER = 2**53


def canonical(value: Any) -> bytes:
    """JSON in its one canonical form (RFC 8785). Raises `ValueError` for what has none."""
    return _written(value).encode("utf-8")


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) >= _LARGEST_INTEGER:
            raise ValueError(f"{value} is larger than a canonical number may be")
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        # By UTF-16 units, as JavaScript sorts: not the order of code points beyond 65,535.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_written(key)}:{_written(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_written, value)) + "]"
    raise ValueError(f"a {type(value).__name__} is not a JSON value")


def _number(value: float) -> str:
    """A float as JavaScript writes it."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if value == 0:
        return "0"
    if value < 0:
        return f"-{_number(-value)}"
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent.removesuffix("e0") or 0)
    digits = (whole + fraction).lstrip("0")
    # The point stands before the first digit, times ten to this power.
    point = power + len(whole) - (len(whole + fraction) - len(digits))
    return _placed(digits.rstrip("0"), point)


def _placed(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = f"{point - 1:+d}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{rest}e{exponent}"
