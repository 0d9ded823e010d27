"""The tree of a Claude Code transcript: the path to its end, and reverted branches."""

from typing import Any

from .claude_code_kinds import attachment_of

_ID_FIELDS = ("uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "agentId")


def drop_invalid_ids(record: dict[str, Any]) -> dict[str, Any]:
    """Replace ids that are not strings by None."""
    wrong = [key for key in _ID_FIELDS if not isinstance(record.get(key), str | None)]
    return {**record, **dict.fromkeys(wrong)} if wrong else record


def message_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a record; empty for records without one."""
    message = record.get("message")
    return message if isinstance(message, dict) else {}


def read_message_id(record: dict[str, Any]) -> str | None:
    """Return the id of the model's answer that a record belongs to."""
    name = message_of(record).get("id")
    return name if isinstance(name, str) and name else None


class Branches:
    """The records in file order, split into the path to the last one and abandoned branches."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.all = _drop_repeated_records(records)
        parents = _find_parents(self.all)
        on_path = _find_path(_find_leaf(self.all), parents)
        self._add_parallel_records(on_path)
        self.kept = [each for each in self.all if _is_kept(each, on_path)]
        self.abandoned = [each for each in self.all if not _is_kept(each, on_path)]

    def _add_parallel_records(self, on_path: set[str]) -> None:
        # Parallel calls of one answer fork the tree: each result is a child of the block with its
        # call, and only one of them is an ancestor of the next record. Add the others.
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
    """Keep each record once: a resumed session may repeat earlier records."""
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
            # The parent is missing or unreadable: fall back to the previous record.
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
    # A record without an id has no place in the tree, so it cannot be reverted.
    in_tree = _is_turn(record) and record.get("uuid") is not None
    return not in_tree or record["uuid"] in on_path


def _is_turn(record: dict[str, Any]) -> bool:
    """Whether a record is a turn, including input that was queued while the agent worked."""
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
