"""The real coding agents of npm: each does a task through the gateway, with a scripted model."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.gateway import expand_request
from assay.sessions import read_claude_code, read_codex, read_opencode
from assay.types import Message, Sample, Trajectory
from coding_agent_runs import PROMPT, find_program, run_agent, run_commands

# The APIs of the model behind the gateway: that of the agent is always one of them.
PROVIDERS = ("openai", "openai-responses", "anthropic")
DIALECTS = {
    "claude-code": "anthropic",
    "codex": "openai_responses",
    "opencode": "openai_chat",
    "pi": "openai_chat",
}
# Where each program keeps the sessions that it records itself.
READERS: dict[str, tuple[str, Callable[[Path], Iterable[Sample]]]] = {
    "claude-code": (".claude", read_claude_code),
    "codex": (".codex", read_codex),
    "opencode": (".local/share/opencode", read_opencode),
}


def require(agent: str) -> None:
    if find_program(agent) is None:
        pytest.skip(f"{agent} is not installed: npm is missing, or `make .npm-agents/.installed`")


def get_trajectory(sample: Sample) -> Trajectory:
    assert sample.failure is None, sample.failure
    assert sample.trajectory is not None
    return sample.trajectory


def list_turns(messages: Iterable[Message]) -> list[tuple[Any, ...]]:
    """The conversation after the question, in which programs and wire must agree."""
    found = [
        (
            message.role,
            message.text.strip(),
            [(call.id, call.name, call.arguments) for call in message.tool_calls],
            message.tool_call_id,
        )
        for message in messages
        # Instructions and summaries are sent as messages, but are not part of the session.
        if message.role in ("assistant", "tool")
    ]
    assert found[0][0] == "assistant"
    return found


def read_own_session(agent: str, home: Path) -> Sample:
    folder, read = READERS[agent]
    (session,) = read(home / folder)
    return session


@pytest.mark.slow
@pytest.mark.parametrize("agent", DIALECTS)
def test_an_agent_finishes_a_tool_task_with_a_model_of_each_api(agent: str, tmp_path: Path) -> None:
    require(agent)

    samples = run_agent(agent, PROVIDERS, tmp_path)

    for place, sample in enumerate(samples):
        trajectory = get_trajectory(sample)
        assert sample.reward == 1.0
        turns = [call for call in trajectory.calls if call.purpose == "turn"]
        assert [call.error for call in trajectory.calls] == [None] * len(trajectory.calls)
        assert len(turns) == 2
        assert all(call.wire is not None for call in turns)
        assert {call.wire["dialect"] for call in turns if call.wire} == {DIALECTS[agent]}
        assert turns[1].parent == trajectory.calls.index(turns[0])
        called, result, answer = list_turns(trajectory.messages)
        assert "forty-two" in result[1]
        assert answer[1].startswith("The file contains")
        assert sample.response == trajectory.messages[-1].text
        if agent in READERS:
            own = read_own_session(agent, tmp_path / f"home-{place}")
            assert list_turns(own.messages) == [called, result, answer]
            assert PROMPT in own.messages[0].text + own.messages[1].text
    titles = [
        call for call in get_trajectory(samples[0]).calls if call.purpose == "title" and call.wire
    ]
    # Paid for and recorded, but not a part of the conversation.
    assert len(titles) == (1 if agent == "opencode" else 0)
    assert "A title" not in [message.text for message in get_trajectory(samples[0]).messages]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "provider"),
    [
        ("claude-code", "openai"),
        ("codex", "anthropic"),
        ("opencode", "openai-responses"),
        ("pi", "openai"),
    ],
)
def test_an_agent_tries_again_after_a_refusal_and_half_a_stream(
    agent: str, provider: str, tmp_path: Path
) -> None:
    require(agent)

    (sample,) = run_agent(agent, [provider], tmp_path, task="faults")

    assert sample.reward == 1.0
    trajectory = get_trajectory(sample)
    turns = [call for call in trajectory.calls if call.purpose == "turn"]
    refused, cut, *others = [call.error for call in turns]
    assert refused == "too many requests"
    assert cut is not None
    assert "the stream of the model" in cut
    assert others == [None, None]
    # OpenCode keeps the half answer in its conversation, and sends it again.
    _, result, answer = list_turns(trajectory.messages)[-3:]
    assert result[1].endswith("forty-two")
    assert answer[1].startswith("The file contains")


@pytest.mark.slow
def test_nested_subagents_of_claude_code_are_child_trajectories(tmp_path: Path) -> None:
    require("claude-code")

    (sample,) = run_agent("claude-code", ["anthropic"], tmp_path, task="subagents")

    trajectory = get_trajectory(sample)
    assert [(each.reason, each.parent) for each in trajectory.branches] == [
        ("root", None),
        ("subagent", 0),
        ("subagent", 1),
        ("subagent", 0),
        ("subagent", 3),
    ]
    assert all(branch.decided_by == "declared" for branch in trajectory.branches)
    children = dict(trajectory.list_subagents())
    assert [child.messages[-1].text for child in children.values()] == [
        "Finished at depth 1.",
        "Finished at depth 2.",
    ] * 2
    own = read_own_session("claude-code", tmp_path / "home-0")
    assert list_turns(own.messages) == list_turns(trajectory.messages)


@pytest.mark.slow
def test_subagents_of_opencode_are_child_trajectories(tmp_path: Path) -> None:
    require("opencode")

    (sample,) = run_agent("opencode", ["openai"], tmp_path, task="subagents")

    trajectory = get_trajectory(sample)
    branches = [(each.reason, each.parent, each.decided_by) for each in trajectory.branches]
    # Its subagents start no others.
    assert branches == [("root", None, "declared"), *[("subagent", 0, "declared")] * 2]
    children = [child for _, child in trajectory.list_subagents()]
    assert [[message.text for message in child.messages[1:]] for child in children] == [
        ["This is depth-1, part 0.", "Finished at depth 1."],
        ["This is depth-1, part 1.", "Finished at depth 1."],
    ]
    assert trajectory.messages[-1].text == "Finished at depth 0."


@pytest.mark.slow
def test_a_compaction_of_codex_is_a_fork_with_a_higher_window(tmp_path: Path) -> None:
    require("codex")
    agent = "codex:-c model_auto_compact_token_limit=50000"

    (sample,) = run_agent(agent, ["openai-responses"], tmp_path, task="compaction")

    trajectory = get_trajectory(sample)
    assert [call.purpose for call in trajectory.calls] == ["turn", "summary", "turn"]
    assert [branch.reason for branch in trajectory.branches] == ["root", "compaction"]
    windows = [
        call.wire["headers"]["x-codex-window-id"].rpartition(":")[2]
        for call in trajectory.calls
        if call.wire is not None
    ]
    assert windows == ["0", "0", "1"]
    assert "CHECKPOINT COMPACTION" in str(expand_request(trajectory.calls, 1)["input"][-1])
    own = read_own_session("codex", tmp_path / "home-0")
    assert list_turns(own.messages) == list_turns(trajectory.messages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "provider", "task", "calls"),
    [
        ("pi", "openai", "tool", 2),
        ("claude-code", "anthropic", "tool", 2),
        ("claude-code", "openai", "subagents", 9),
    ],
)
def test_a_recorded_agent_is_replayed_without_its_model(
    agent: str, provider: str, task: str, calls: int, tmp_path: Path
) -> None:
    require(agent)

    recorded, replayed = run_agent(agent, [provider], tmp_path, task=task, replay=True)

    first, second = get_trajectory(recorded), get_trajectory(replayed)
    assert len(first.calls) == len(second.calls) == calls
    assert all((call.model_extra or {}).get("replayed") for call in second.calls)
    # Results of tools contain the ids and times of their run.
    answers = [
        [turn for turn in list_turns(each.messages) if turn[0] == "assistant"]
        for each in (first, second)
    ]
    assert answers[0] == answers[1]
    assert replayed.reward == recorded.reward
    assert second.duration == first.duration


@pytest.mark.slow
def test_the_five_minutes_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("claude-code")
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text("utf-8")
    section = page.partition("in five minutes\n")[2].partition("To compare agents")[0]
    commands = re.findall(r"^\$ assay .*", section, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, {"Path": Path})

    output = run_commands(commands, tmp_path)

    assert len(commands) == 2
    assert "score         1.000" in output
    assert "reason    the check passed" in output
    assert os.listdir(tmp_path / "shop") == ["cart.py"]
    assert "quantity for" not in (tmp_path / "shop" / "cart.py").read_text()
