"""The tree of a Claude Code transcript: the path to its end, and reverted branches."""

from typing import Any

from .claude_code_kinds import attachment_of
from .foreign_values import dict_or_empty, list_or_empty, text_or_none

# Ids become keys of mappings, but a file may contain any JSON value in their place.
_ID_FIELDS = ("uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "agentId")


def drop_invalid_ids(record: dict[str, Any]) -> dict[str, Any]:
    """Replace ids that are not strings by None."""
    wrong = [key for key in _ID_FIELDS if not isinstance(record.get(key), str | None)]
    return {**record, **dict.fromkeys(wrong)} if wrong else record


def message_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a record; empty for records without one."""
    return dict_or_empty(record.get("message"))


def read_message_id(record: dict[str, Any]) -> str | None:
    """Return the id of the model's answer that a record belongs to."""
    return text_or_none(message_of(record).get("id"))


class Branches:
    """The records in file order, split into the path to the last one and abandoned branches."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        # A resumed session may repeat earlier records.
        by_id = {record.get("uuid"): record for record in reversed(records)}
        self.all = [
            record
            for record in records
            if record.get("uuid") is None or by_id[record["uuid"]] is record
        ]
        parents = _find_parents(self.all)
        turns = (each.get("uuid") for each in reversed(self.all) if _is_turn(each))
        leaf = next((name for name in turns if isinstance(name, str)), None)
        on_path: set[str] = set()
        while leaf is not None and leaf not in on_path:
            on_path.add(leaf)
            leaf = parents.get(leaf)
        self._add_parallel_records(on_path)
        self.kept: list[dict[str, Any]] = []
        self.abandoned: list[dict[str, Any]] = []
        for record in self.all:
            # A record without an id has no place in the tree, so it cannot be reverted.
            in_tree = _is_turn(record) and record.get("uuid") is not None
            reverted = in_tree and record["uuid"] not in on_path
            (self.abandoned if reverted else self.kept).append(record)

    def _add_parallel_records(self, on_path: set[str]) -> None:
        # Parallel calls of one answer fork the tree: each result is a child of the block with its
        # call, and only one of them is an ancestor of the next record. Add the others.
        answers = {read_message_id(each) for each in self.all if each.get("uuid") in on_path}
        answers.discard(None)
        calls: set[str] = set()
        for record in self.all:
            if record.get("uuid") in on_path or read_message_id(record) in answers:
                on_path.add(str(record.get("uuid")))
                calls |= {str(block.get("id")) for block in _filter_blocks(record, "tool_use")}
        for record in self.all:
            results = _filter_blocks(record, "tool_result")
            if any(str(each.get("tool_use_id")) in calls for each in results):
                on_path.add(str(record.get("uuid")))


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


def _is_turn(record: dict[str, Any]) -> bool:
    """Whether a record is a turn, including input that was queued while the agent worked."""
    if record.get("type") in ("user", "assistant"):
        return True
    return attachment_of(record).get("type") == "queued_command"


def _filter_blocks(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = list_or_empty(message_of(record).get("content"))
    return [each for each in content if isinstance(each, dict) and each.get("type") == kind]
