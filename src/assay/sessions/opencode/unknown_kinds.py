"""Count kinds of messages and parts that no known version of OpenCode writes."""

from collections import Counter

from .archive import StoredSession

_OPENCODE_ROLES = frozenset(("user", "assistant"))
_OPENCODE_PARTS = frozenset(
    "text reasoning tool file step-start step-finish snapshot patch agent subtask retry "
    "compaction source-url".split()
)
_MAX_KIND_NAME_LENGTH = 80


def count_unknown_kinds(session: StoredSession) -> Counter[str]:
    """Count the messages and parts of a session by unknown kind."""
    found: Counter[str] = Counter()
    parts = list(session.stray_parts)
    for message in session.messages:
        if _format_kind_name(message.info.get("role")) not in _OPENCODE_ROLES:
            found[f"message of role {_format_kind_name(message.info.get('role'))}"] += 1
        parts += message.parts
    for part in parts:
        if (kind := _format_kind_name(part.get("type"))) not in _OPENCODE_PARTS:
            found[f"part {kind}"] += 1
    return found


def _format_kind_name(value: object) -> str:
    return (
        value[:_MAX_KIND_NAME_LENGTH]
        if isinstance(value, str)
        else f"of type {type(value).__name__}"
    )
