"""Kinds of records: which are known."""

import pytest

from assay.sessions.claude_code_kinds import find_unknown_blocks, is_known_kind, kind_of


@pytest.mark.parametrize(
    ("record", "kind", "known"),
    [
        ({"type": "cost-state"}, "cost-state", True),
        ({"type": "system", "subtype": "api_error"}, "system/api_error", True),
        ({"type": "attachment", "attachment": {"type": "date"}}, "attachment/date", True),
        ({"type": "attachment", "attachment": "date"}, "attachment/None", False),
        ({"type": "attachment", "attachment": {"type": "aura"}}, "attachment/aura", False),
        ({"type": "system"}, "system/None", False),
        ({"type": "date"}, "date", False),
        ({}, "None", False),
        # A message without one is a damaged record.
        ({"type": "user"}, "user", False),
    ],
)
def test_a_record_is_of_a_kind_that_is_known_or_not(
    record: dict[str, object], kind: str, known: bool
) -> None:
    assert kind_of(record) == kind
    assert is_known_kind(kind) is known


def test_blocks_of_unknown_kinds_are_found_inside_results_too() -> None:
    inner = {"type": "tool_result", "content": [{"type": "image"}, {"type": "smell"}]}

    assert list(find_unknown_blocks([{"type": "text"}, inner, {"type": 7}, "text"])) == [
        "content/smell",
        "content/7",
        "content/str",
    ]
    assert list(find_unknown_blocks("text")) == []
