"""An agent that converts units and does sums: the one that `agent.yaml` describes."""

import re
from decimal import Decimal

from assay.types import Sample

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_CONVERT = re.compile(rf"{_NUMBER} ?(°?[A-Za-z]+) (?:to|in) (°?[A-Za-z]+)")
_SUM = re.compile(rf"{_NUMBER} ([-+*/]) {_NUMBER}")

_SIZES = {
    "length": {"mm": "0.001", "cm": "0.01", "m": "1", "km": "1000", "in": "0.0254", "ft": "0.3048"},
    "mass": {"mg": "0.001", "g": "1", "kg": "1000", "t": "1000000"},
    "volume": {"mL": "0.001", "cL": "0.01", "L": "1"},
    "time": {"s": "1", "min": "60", "h": "3600", "d": "86400"},
    "data": {"bit": "1", "byte": "8", "kB": "8000", "MB": "8000000"},
}
"""How many of the first unit each unit of a kind is."""


def answer(sample: Sample) -> str:
    """Answer a question such as `Convert 3.5 km to m.` or `What is 17 * 23?`."""
    question = sample.messages[-1].text
    if asked := _CONVERT.search(question):
        amount, unit, wanted = asked.groups()
        return f"The answer is {_plain(_converted(Decimal(amount), unit, wanted))} {wanted}."
    if asked := _SUM.search(question):
        return f"The answer is {_plain(_worked_out(*asked.groups()))}."
    return "I can only convert units and do sums."


def _converted(amount: Decimal, unit: str, wanted: str) -> Decimal:
    if (unit, wanted) == ("°C", "°F"):
        return amount * 9 / 5 + 32
    if (unit, wanted) == ("°F", "°C"):
        return (amount - 32) * 5 / 9
    for sizes in _SIZES.values():
        if unit in sizes and wanted in sizes:
            return amount * Decimal(sizes[unit]) / Decimal(sizes[wanted])
    raise ValueError(f"{unit} cannot be converted to {wanted}")


def _worked_out(left: str, operation: str, right: str) -> Decimal:
    one, other = Decimal(left), Decimal(right)
    if operation == "+":
        return one + other
    if operation == "-":
        return one - other
    return one * other if operation == "*" else one / other


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
