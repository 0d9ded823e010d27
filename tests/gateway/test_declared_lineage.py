"""The headers by which agents declare their conversations."""

import pytest

from assay.gateway.declared_lineage import DeclaredLineage, read_declared_lineage


@pytest.mark.parametrize(
    ("headers", "declared"),
    [
        ({}, None),
        ({"x-claude-code-session-id": "s"}, DeclaredLineage("s")),
        (
            {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"},
            DeclaredLineage("a", "s"),
        ),
        (
            {
                "x-claude-code-session-id": "s",
                "x-claude-code-agent-id": "b",
                "x-claude-code-parent-agent-id": "a",
            },
            DeclaredLineage("b", "a"),
        ),
        ({"thread-id": "t", "session-id": "t"}, DeclaredLineage("t")),
        ({"thread-id": "u", "session-id": "t"}, DeclaredLineage("u", "t")),
        (
            {"thread-id": "t", "x-codex-window-id": "t:3"},
            DeclaredLineage("t", window=3),
        ),
        (
            {"thread-id": "t", "x-codex-turn-metadata": '{"request_kind":"turn"}'},
            DeclaredLineage("t", kind="turn"),
        ),
        ({"thread-id": "t", "x-codex-turn-metadata": "broken"}, DeclaredLineage("t")),
        ({"thread-id": "t", "x-codex-turn-metadata": "[]"}, DeclaredLineage("t")),
        ({"x-session-id": "o", "x-parent-session-id": "p"}, DeclaredLineage("o", "p")),
    ],
)
def test_the_declared_conversation(
    headers: dict[str, str], declared: DeclaredLineage | None
) -> None:
    assert read_declared_lineage(headers) == declared
