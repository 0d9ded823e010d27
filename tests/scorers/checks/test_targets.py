"""Targets: which text of a conversation each name means."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers.checks.conversation import ConversationView
from assay.scorers.checks.targets import TargetedEntry
from assay.types import Message, YamlDocument, validate_document
from check_files import session
from make import asked, sample


def entry(**check: Any) -> TargetedEntry:
    return validate_document(YamlDocument({"name": "it", **check}, "c.yaml"), TargetedEntry)


def texts(**check: Any) -> list[str]:
    return [passage.text for passage in entry(**check).list_passages(ConversationView(session()))]


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({}, ["Not quite: 3 errors remain."]),
        ({"target": "prompt"}, ["Sure?"]),
        ({"target": "prompt", "turn": 1}, ["Fix the typo in notes.txt"]),
        ({"target": "prompt", "turn": 2}, []),
        ({"target": "prompt_concat"}, ["Fix the typo in notes.txt\n\nSure?"]),
        ({"target": "response", "turn": 2}, ["I look first.\n\nIt is fixed."]),
        ({"target": "response", "turn": -1}, ["Not quite: 3 errors remain."]),
        ({"target": "response", "turn": 9}, []),
        ({"target": "response", "turn": -9}, []),
        ({"target": "tool.name"}, ["read", "read", "edit"]),
        ({"target": "tool.name", "turn": 4}, []),
        ({"target": "tool.name", "turn": 9}, []),
        ({"target": "tool.args", "tool": "edit"}, ['{"path":"notes.txt"}']),
        ({"target": "tool.output"}, ['{"lines": 2, "text": "helo"}', "print()"]),
        ({"target": "tool.error"}, ["no such line"]),
        ({"target": "tool.output", "tool": "bash"}, []),
        ({"target": "reasoning"}, []),
    ],
)
def test_a_target_reads_what_it_names(check: dict[str, Any], expected: list[str]) -> None:
    assert texts(**check) == expected


def test_reasoning_is_read_by_turn() -> None:
    thought = Message(role="assistant", content="4", reasoning="hm")
    reading = ConversationView(sample(asked("q"), thought))

    for turn, count in ((2, 1), (1, 0)):
        assert len(entry(target="reasoning", turn=turn).list_passages(reading)) == count


@pytest.mark.parametrize(
    ("check", "refused"),
    [
        ({"target": "respnse"}, "did you mean 'response'?"),
        ({"target": "response", "tool": "read"}, "is not a part of a tool call"),
        ({"turn": 0}, "turns count from 1"),
        ({"turn": "last"}, "not a whole number"),
        ({"turn": 1.5}, "not a whole number"),
    ],
)
def test_a_wrong_target_is_refused(check: dict[str, Any], refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        texts(**check)

    assert refused in str(caught.value)
