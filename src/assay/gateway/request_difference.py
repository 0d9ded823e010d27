"""The first difference between two requests, as text for people."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

_MAX_DIFF_LINES = 24
_LINE_WIDTH = 100
_MAX_PART_CHARS = 20_000
_MISSING = object()


@dataclass(frozen=True)
class RequestDifference:
    """Where two requests differ first, and how."""

    part: str
    """The path of the part, such as `messages[3].content`."""

    diff: tuple[str, ...]
    """A unified diff of that part, from the recorded request to the present one."""


def find_difference(
    recorded: Mapping[str, Any], present: Mapping[str, Any], list_field: str
) -> RequestDifference:
    """Find the first difference. The conversation is compared before the other fields."""
    names = sorted({*recorded, *present}, key=lambda name: (name != list_field, name))
    for name in names:
        old, new = recorded.get(name, _MISSING), present.get(name, _MISSING)
        if old != new:
            part, old, new = _descend(name, old, new)
            return RequestDifference(part, tuple(_diff_texts(_to_lines(old), _to_lines(new))))
    return RequestDifference("nothing", ())


def _descend(part: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """Return the innermost part that contains the first difference."""
    if isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            if one != other:
                return _descend(f"{part}[{index}]{_name_role(one, other)}", one, other)
        # One list continues the other: the added items are the difference.
        shared = min(len(old), len(new))
        item = f"{part}[{shared}]{_name_role(*old[shared : shared + 1], *new[shared : shared + 1])}"
        return item, _get(old, shared), _get(new, shared)
    if isinstance(old, dict) and isinstance(new, dict):
        # The text of a message is more telling than its ids.
        names = sorted({*old, *new}, key=lambda name: (name not in ("content", "text"), name))
        changed = [name for name in names if old.get(name, _MISSING) != new.get(name, _MISSING)]
        if len(changed) == 1 or changed[0] in ("content", "text"):
            name = changed[0]
            inner = f"{part}.{name}"
            return _descend(inner, old.get(name, _MISSING), new.get(name, _MISSING))
    return part, old, new


def _get(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def _name_role(*messages: Any) -> str:
    roles = {each.get("role") for each in messages if isinstance(each, dict)} - {None}
    return f" ({roles.pop()})" if len(roles) == 1 else ""


def _to_lines(value: Any) -> list[str]:
    if value is _MISSING:
        return []
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    cut = text[:_MAX_PART_CHARS]
    # Long lines are wrapped: a diff of whole paragraphs would not show which word differs.
    lines = [
        piece
        for line in cut.splitlines()
        for piece in (
            wrap(line, _LINE_WIDTH, drop_whitespace=False, break_on_hyphens=False) or [""]
        )
    ]
    return [*lines, *(["…"] if len(text) > len(cut) else [])]


def _diff_texts(old: list[str], new: list[str]) -> list[str]:
    found = list(difflib.unified_diff(old, new, "recorded", "now", n=1, lineterm=""))
    shown = found[:_MAX_DIFF_LINES]
    if (more := len(found) - len(shown)) > 0:
        shown.append(f"… and {more} more lines")
    return shown
