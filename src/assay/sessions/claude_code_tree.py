"""Which records of a Claude Code transcript lead to its end, and which the user went back on."""

from typing import Any

from .claude_code_kinds import attachment_of

_ID_FIELDS = ("uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "agentId")


def drop_invalid_ids(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose names are strings; one that is anything else names nothing."""
    wrong = [key for key in _ID_FIELDS if not isinstance(record.get(key), str | None)]
    return {**record, **dict.fromkeys(wrong)} if wrong else record


def message_of(record: dict[str, Any]) -> dict[str, Any]:
    """The message in a record; empty for records without one."""
    message = record.get("message")
    return message if isinstance(message, dict) else {}


def read_message_id(record: dict[str, Any]) -> str | None:
    """The id of the model's answer that a record is a block of."""
    name = message_of(record).get("id")
    return name if isinstance(name, str) and name else None


class Branches:
    """Records in the order of the file, in two lists: on the way to the last one, and not."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.all = _drop_repeated_records(records)
        parents = _find_parents(self.all)
        on_path = _find_path(_find_leaf(self.all), parents)
        self._add_parallel_records(on_path)
        self.kept = [each for each in self.all if _is_kept(each, on_path)]
        self.abandoned = [each for each in self.all if not _is_kept(each, on_path)]

    def _add_parallel_records(self, on_path: set[str]) -> None:
        """Add what belongs to the path though it does not lie on it.

        Calls of one answer that run at the same time are a fork in the tree: each result hangs on
        the block with its call, and only one of them leads on.
        """
        answers = {read_message_id(each) for each in self.all if each.get("uuid") in on_path} - {
            None
        }
        calls: set[str] = set()
        for record in self.all:
            if record.get("uuid") in on_path or read_message_id(record) in answers:
                on_path.add(str(record.get("uuid")))
                calls |= {str(block.get("id")) for block in _filter_blocks(record, "tool_use")}
        for record in self.all:
            if any(
                str(each.get("tool_use_id")) in calls
                for each in _filter_blocks(record, "tool_result")
            ):
                on_path.add(str(record.get("uuid")))


def _drop_repeated_records(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each record once: a session that is taken up again may repeat those that are there."""
    seen: set[Any] = set()
    found = []
    for record in records:
        name = record.get("uuid")
        if name is None or name not in seen:
            found.append(record)
            seen.add(name)
    return found


def _find_parents(records: list[dict[str, Any]]) -> dict[str, str | None]:
    known = {record.get("uuid") for record in records}
    parents: dict[str, str | None] = {}
    previous: str | None = None
    for record in records:
        name = record.get("uuid")
        if not isinstance(name, str):
            continue
        parent = record.get("parentUuid")
        boundary = record.get("subtype") == "compact_boundary"
        if parent is None and boundary:
            parent = record.get("logicalParentUuid") or previous
        if parent is not None and parent not in known:
            # The record it hangs on is gone or cannot be read; the one before it still is there.
            parent = previous
        parents[name] = parent
        previous = name
    return parents


def _find_leaf(records: list[dict[str, Any]]) -> str | None:
    for record in reversed(records):
        if _is_turn(record) and isinstance(record.get("uuid"), str):
            return str(record["uuid"])
    return None


def _find_path(leaf: str | None, parents: dict[str, str | None]) -> set[str]:
    found: set[str] = set()
    while leaf is not None and leaf not in found:
        found.add(leaf)
        leaf = parents.get(leaf)
    return found


def _is_kept(record: dict[str, Any], on_path: set[str]) -> bool:
    # What has no name cannot be gone back on.
    spoken = _is_turn(record) and record.get("uuid") is not None
    return not spoken or record["uuid"] in on_path


def _is_turn(record: dict[str, Any]) -> bool:
    """Whether a record is a turn: also what was typed while the agent worked."""
    if record.get("type") in ("user", "assistant"):
        return True
    return attachment_of(record).get("type") == "queued_command"


def _filter_blocks(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message_of(record).get("content")
    return [
        block
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, dict) and block.get("type") == kind
    ]
