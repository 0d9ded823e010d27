"""Requests that coding agents sent, replayed: every API and every agent without npm.

The fixtures were recorded by the gateway while the real programs did the tasks of
`test_coding_agents.py`. Long texts and lists of tools are cut.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from assay.gateway import Gateway
from assay.types import Trajectory
from coding_agent_runs import ScriptedModel

FIXTURES = Path(__file__).parents[1] / "fixtures" / "agent_requests"


def replay(name: str, *, task: str = "tool") -> tuple[Trajectory, list[str]]:
    """Send recorded requests again: the trajectory, and the streams that came back."""

    async def scenario() -> tuple[Trajectory, list[str]]:
        streams = []
        async with Gateway(ScriptedModel(task)) as gateway, aiohttp.ClientSession() as client:
            session = gateway.open_session()
            for request in json.loads((FIXTURES / f"{name}.json").read_text("utf-8")):
                access = {"Authorization": f"Bearer {session.key}"}
                async with client.post(
                    session.root_url + request["path"],
                    json=request["body"],
                    headers={**request["headers"], **access},
                ) as answer:
                    streams.append(await answer.text())
                    assert answer.status == 200, streams[-1]
                    assert answer.content_type == "text/event-stream"
            return await session.seal(), streams

    return asyncio.run(scenario())


def purposes(trajectory: Trajectory) -> list[str]:
    return [call.purpose for call in trajectory.calls]


@pytest.mark.parametrize(
    ("name", "end_of_stream"),
    [
        ("claude_code", "event: message_stop"),
        ("codex", "event: response.completed"),
        ("opencode", "data: [DONE]"),
        ("pi", "data: [DONE]"),
    ],
)
def test_a_tool_task_is_one_conversation(name: str, end_of_stream: str) -> None:
    trajectory, streams = replay(name)

    assert [each for each in purposes(trajectory) if each != "title"] == ["turn", "turn"]
    assert all(end_of_stream in stream for stream in streams)
    assert trajectory.branches == []
    called, result, answer = trajectory.messages[-3:]
    assert [each.arguments for each in called.tool_calls] != [{}]
    assert (result.role, result.tool_call_id) == ("tool", called.tool_calls[0].id)
    assert answer.text.startswith("The file contains")


def test_the_title_of_opencode_is_not_a_turn() -> None:
    trajectory, _ = replay("opencode")

    assert sorted(purposes(trajectory)) == ["title", "turn", "turn"]
    assert "A title" not in [message.text for message in trajectory.messages]


def test_subagents_of_claude_code_form_a_tree() -> None:
    trajectory, _ = replay("claude_code_subagents", task="subagents")

    found = [(each.reason, each.parent, each.decided_by) for each in trajectory.branches]
    assert found == [
        ("root", None, "declared"),
        ("subagent", 0, "declared"),
        ("subagent", 1, "declared"),
        ("subagent", 0, "declared"),
        ("subagent", 3, "declared"),
    ]
    assert len(trajectory.list_subagents()) == 4


def test_a_compaction_of_codex_keeps_the_conversation_before_it() -> None:
    trajectory, _ = replay("codex_compaction", task="compaction")

    assert purposes(trajectory) == ["turn", "summary", "turn"]
    assert [branch.reason for branch in trajectory.branches] == ["root", "compaction"]
    roles = [message.role for message in trajectory.messages[-5:]]
    # The result of the tool was sent with the request for the summary only.
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


def list_texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in list_texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in list_texts(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_fixtures_have_no_key_and_no_long_text(path: Path) -> None:
    bodies = [request["body"] for request in json.loads(path.read_text("utf-8"))]

    texts = list_texts(bodies)

    assert max(map(len, texts)) < 1000
    assert not any("sk-" in text or "Bearer" in text for text in texts)
