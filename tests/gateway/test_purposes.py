"""Why an agent calls its model: turns, titles, summaries and probes."""

from typing import Any

import pytest

from assay.gateway.declared_lineage import DeclaredLineage
from assay.gateway.purposes import classify_call

TOOLS = [{"name": "f"}]
ASK = [{"role": "user", "content": "Fix the title of the page and summarize the conversation."}]


@pytest.mark.parametrize(
    ("body", "purpose"),
    [
        ({"messages": ASK, "tools": TOOLS}, "turn"),
        ({"messages": ASK}, "turn"),
        ({"input": "hello"}, "turn"),
        ({"messages": ASK, "max_tokens": 1}, "probe"),
        ({"system": "You are a title generator.", "messages": ASK}, "title"),
        ({"system": [{"type": "text", "text": "Generate a concise title"}]}, "title"),
        ({"system": "You are a title generator.", "messages": ASK, "tools": TOOLS}, "turn"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": "Your task is to create a detailed summary of the "
                        "conversation so far, paying close attention",
                    }
                ],
                "tools": TOOLS,
            },
            "summary",
        ),
        (
            {"messages": [{"role": "system", "content": "You are a context summarization helper"}]},
            "summary",
        ),
        ({"messages": "broken", "system": 3, "tools": None}, "turn"),
    ],
)
def test_the_purpose_of_a_request(body: dict[str, Any], purpose: str) -> None:
    assert classify_call(body, None) == purpose


def test_a_declared_compaction_is_a_summary() -> None:
    declared = DeclaredLineage("t", kind="compaction")

    assert classify_call({"input": []}, declared) == "summary"
