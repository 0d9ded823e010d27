"""Kinds of messages and parts that no version of OpenCode known here writes."""

from collections import Counter

from .archive import StoredSession

_ROLES = frozenset(("user", "assistant"))
_PARTS = frozenset(
    "text reasoning tool file step-start step-finish snapshot patch agent subtask retry "
    "compaction source-url".split()
)
_LONGEST = 80


def count_unknown_kinds(session: StoredSession) -> Counter[str]:
    """How many messages and parts of a session are of which unknown kind."""
    found: Counter[str] = Counter()
    parts = list(session.stray_parts)
    for message in session.messages:
        if _name(message.info.get("role")) not in _ROLES:
            found[f"message of role {_name(message.info.get('role'))}"] += 1
        parts += message.parts
    for part in parts:
        if (kind := _name(part.get("type"))) not in _PARTS:
            found[f"part {kind}"] += 1
    return found


def _name(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else f"of type {type(value).__name__}"
