"""Arguments of tool calls that a server sends as objects instead of text."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from pydantic_core import to_json

from assay.types import Message


def split_arguments(given: Any) -> tuple[Any, str | None]:
    """Return the arguments of a call, or `{}` and their text if JSON cannot represent them.

    A number such as 1e999 is parsed as infinity. Such arguments are kept as text, so that the model
    gets an error and can correct them.
    """
    if isinstance(given, dict) and not _is_finite_json(given):
        return {}, to_json(given).decode()
    return given, None


def add_raw_arguments(message: Message, raw: Sequence[str | None]) -> Message:
    """Return the message with the texts of its calls, one for each call."""
    if not any(raw):
        return message
    calls = [
        call.model_copy(update={"raw_arguments": text}) if text else call
        for call, text in zip(message.tool_calls, raw, strict=True)
    ]
    return message.model_copy(update={"tool_calls": tuple(calls)})


def _is_finite_json(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite_json, value.values()))
    return all(map(_is_finite_json, value)) if isinstance(value, list) else True
