"""Which call continues which: declared ids, prefixes of tokens or messages, and forks."""

import asyncio
from typing import Any

import pytest

from assay.gateway import build_recorded_trajectory
from assay.gateway.conversation_keys import KeyReader
from assay.types import Message, Trajectory
from recorded_calls import DIALECTS, Recording, agent, call_tool, user, write_message


def build(recording: Recording) -> Trajectory:
    trajectory = recording.session.build_trajectory()
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    return trajectory


def branch_reasons(trajectory: Trajectory) -> list[str]:
    return [branch.reason for branch in trajectory.branches]


def test_turns_of_one_conversation_are_one_branch() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("a"), agent("b"), user("c")], "d")
    recording.ask([user("a"), agent("b"), user("c"), agent("d"), user("e")], "f")

    trajectory = build(recording)

    assert trajectory.branches == []
    assert [call.parent for call in trajectory.calls] == [None, 0, 1]
    assert [message.text for message in trajectory.messages] == list("abcdef")
    assert [call.message_index for call in trajectory.calls] == [1, 3, 5]
    assert [(call.wire or {}).get("lineage_by") for call in trajectory.calls] == [
        None,
        "messages",
        "messages",
    ]


def test_interleaved_conversations_are_told_apart() -> None:
    recording = Recording()
    recording.ask([user("a")], "1")
    recording.ask([user("x")], "2")
    recording.ask([user("a"), agent("1"), user("b")], "3")
    recording.ask([user("x"), agent("2"), user("y")], "4")
    recording.ask([user("a"), agent("1"), user("b"), agent("3"), user("c")], "5")

    trajectory = build(recording)

    assert [call.branch for call in trajectory.calls] == [0, 1, 0, 1, 0]
    assert [call.parent for call in trajectory.calls] == [None, None, 0, 1, 2]
    assert [message.text for message in trajectory.messages] == ["a", "1", "b", "3", "c", "5"]
    assert [message.text for message in trajectory.branches[1].messages] == ["x", "2", "y", "4"]


def test_an_edited_history_forks_where_it_differs() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("a"), agent("b"), user("c")], "d")
    recording.ask([user("a"), agent("b"), user("changed")], "e")

    trajectory = build(recording)

    assert branch_reasons(trajectory) == ["root", "edited_history"]
    assert trajectory.branches[1].parent == 0
    assert trajectory.branches[1].parent_call == 0
    assert [message.text for message in trajectory.messages] == ["a", "b", "changed", "e"]


def test_the_same_question_again_is_resampled() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("a")], "c")

    trajectory = build(recording)

    assert branch_reasons(trajectory) == ["root", "resampled"]


def test_equal_conversations_are_kept_apart_and_marked_ambiguous() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("a")], "b")
    recording.ask([user("a"), agent("b"), user("c")], "d")

    trajectory = build(recording)

    assert [branch.ambiguous for branch in trajectory.branches] == [False, False, True]
    assert trajectory.calls[2].parent is None


def test_the_tokens_decide_whether_a_call_continues_another_exactly() -> None:
    recording = Recording()
    recording.ask([user("a")], "b", ids=((1, 2), (3,)))
    recording.ask([user("a"), agent("b"), user("c")], "d", ids=((1, 2, 3, 4), (5,)))
    recording.ask(
        [user("a"), agent("b"), user("c"), agent("d"), user("e")], "f", ids=((1, 2, 9, 4), (6,))
    )

    trajectory = build(recording)

    assert branch_reasons(trajectory) == ["root", "retokenized"]
    assert [call.branch for call in trajectory.calls] == [0, 0, 1]
    assert trajectory.branches[1].decided_by == "tokens"
    assert [message.text for message in trajectory.messages] == list("abcdef")


def test_stripped_reasoning_is_the_reason_of_a_fork() -> None:
    recording = Recording()
    thought = Message(role="assistant", content="b", reasoning="because")
    recording.ask([user("a")], thought, ids=((1,), (2, 3)))
    recording.ask([user("a"), agent("b"), user("c")], "d", ids=((1, 3, 4), (5,)))

    assert branch_reasons(build(recording)) == ["root", "reasoning_stripped"]


def test_a_summary_that_comes_back_is_a_compaction() -> None:
    recording = Recording()
    summary = "The user wants a and the agent answered b."
    recording.ask([user("a")], "b")
    task = "Your task is to create a detailed summary of the conversation so far"
    recording.ask([user("a"), agent("b"), user(task)], summary)
    recording.ask([user(f"Continue from here: {summary}"), user("c")], "d")

    trajectory = build(recording)

    assert [call.purpose for call in trajectory.calls] == ["turn", "summary", "turn"]
    assert branch_reasons(trajectory) == ["root", "compaction"]
    texts = [message.text for message in trajectory.messages]
    assert texts == ["a", "b", f"Continue from here: {summary}", "c", "d"]


def test_the_last_tool_result_before_a_compaction_is_kept() -> None:
    recording = Recording()
    summary = "The user wants a and the agent looked."
    looked = call_tool("t1", "look")
    result = {"role": "tool", "tool_call_id": "t1", "content": "found"}
    task = "Your task is to create a detailed summary of the conversation so far"
    recording.ask([user("a")], looked)
    recording.ask([user("a"), write_message(looked), result, user(task)], summary)
    recording.ask([user(f"Continue from here: {summary}")], "d")

    messages = build(recording).messages

    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


def test_a_subagent_is_found_by_the_call_that_started_it() -> None:
    recording = Recording()
    prompt = "Find all places where the file is read."
    started = call_tool("t1", "task", prompt=prompt)
    recording.ask([user("go")], started)
    recording.ask([user(prompt)], "two places", system="other")
    result = {"role": "tool", "tool_call_id": "t1", "content": "two places"}
    recording.ask([user("go"), write_message(started), result], "done")

    trajectory = build(recording)

    assert branch_reasons(trajectory) == ["root", "subagent"]
    assert trajectory.branches[1].parent_call == 0
    ((name, child),) = trajectory.list_subagents()
    assert name == "subagent-1"
    assert [message.text for message in child.messages] == [prompt, "two places"]
    assert len(child.calls) == 1
    assert [message.role for message in trajectory.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize(
    "instructions", ["You are a title generator.", "You are a summarization assistant."]
)
def test_an_agent_whose_work_is_titles_or_summaries_makes_turns(instructions: str) -> None:
    recording = Recording()
    recording.ask([{"role": "system", "content": instructions}, user("a")], "About a")

    trajectory = asyncio.run(recording.session.seal())

    assert [call.purpose for call in trajectory.calls] == ["turn"]
    assert trajectory.messages[-1].text == "About a"


def test_titles_are_recorded_but_are_not_the_conversation() -> None:
    recording = Recording()
    title = [{"role": "system", "content": "You are a title generator."}, user("a")]
    recording.ask(title, "About a")
    recording.ask([user("a")], "b", tools=[{"type": "function"}])

    trajectory = build(recording)

    assert [call.purpose for call in trajectory.calls] == ["title", "turn"]
    assert [message.text for message in trajectory.messages] == ["a", "b"]


def test_a_failed_call_is_in_the_branch_but_is_not_continued() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("a"), agent("b"), user("c")], None)
    recording.ask([user("a"), agent("b"), user("c")], "d")

    trajectory = build(recording)

    assert trajectory.branches == []
    assert [call.error for call in trajectory.calls] == [None, "broken", None]
    assert [call.parent for call in trajectory.calls] == [None, 0, 0]


def test_a_first_call_that_failed_is_in_the_conversation_of_its_retry() -> None:
    recording = Recording()
    recording.ask([user("a")], None)
    recording.ask([user("a")], None)
    recording.ask([user("a")], "b")
    recording.ask([user("a")], "c")

    trajectory = build(recording)

    assert [call.branch for call in trajectory.calls[:3]] == [0, 0, 0]
    assert branch_reasons(trajectory) == ["root", "resampled"]
    assert len(recording.session.split_conversations()) == 1


CLAUDE = {"X-Claude-Code-Session-Id": "s1"}
CHILD = {**CLAUDE, "x-claude-code-agent-id": "a1"}
GRANDCHILD = {
    **CLAUDE,
    "x-claude-code-agent-id": "a2",
    "x-claude-code-parent-agent-id": "a1",
}


def test_declared_subagents_form_a_tree() -> None:
    recording = Recording()
    recording.ask([user("main")], "1", headers=CLAUDE)
    recording.ask([user("child")], "2", headers=CHILD)
    recording.ask([user("grandchild")], "3", headers=GRANDCHILD)
    recording.ask([user("child"), agent("2"), user("more")], "4", headers=CHILD)
    recording.ask([user("main"), agent("1"), user("more")], "5", headers=CLAUDE)

    trajectory = build(recording)

    assert [(each.reason, each.name, each.parent) for each in trajectory.branches] == [
        ("root", "s1", None),
        ("subagent", "a1", 0),
        ("subagent", "a2", 1),
    ]
    assert [call.branch for call in trajectory.calls] == [0, 1, 2, 1, 0]
    assert all(branch.decided_by == "declared" for branch in trajectory.branches)


def test_a_declared_id_wins_over_equal_conversations() -> None:
    recording = Recording()
    for name in ("a1", "a2"):
        headers = {**CLAUDE, "x-claude-code-agent-id": name}
        recording.ask([user("same")], "1", headers=headers)
    for name in ("a1", "a2"):
        headers = {**CLAUDE, "x-claude-code-agent-id": name}
        recording.ask([user("same"), agent("1"), user("more")], "2", headers=headers)

    trajectory = build(recording)

    assert [call.branch for call in trajectory.calls] == [0, 1, 0, 1]
    assert not any(branch.ambiguous for branch in trajectory.branches)


def codex(thread: str, window: int, kind: str = "turn") -> dict[str, str]:
    metadata = f'{{"request_kind": "{kind}", "window_number": {window}}}'
    return {"thread-id": thread, "session-id": "t", "x-codex-turn-metadata": metadata}


def test_a_rising_window_of_codex_is_a_compaction() -> None:
    recording = Recording()
    recording.ask([user("a")], "b", headers=codex("t", 0))
    recording.ask([user("a"), agent("b"), user("sum up")], "S", headers=codex("t", 0, "compaction"))
    recording.ask([user("S"), user("c")], "d", headers=codex("t", 1))

    trajectory = build(recording)

    assert [call.purpose for call in trajectory.calls] == ["turn", "summary", "turn"]
    assert branch_reasons(trajectory) == ["root", "compaction"]
    assert trajectory.branches[1].decided_by == "declared"


def test_other_conversations_of_a_session_are_split_off() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    recording.ask([user("x")], "y")
    recording.ask([user("a"), agent("b"), user("c")], "d")

    first, second = map(build_recorded_trajectory, recording.session.split_conversations())

    assert [message.text for message in first.messages] == ["a", "b", "c", "d"]
    assert [message.text for message in second.messages] == ["x", "y"]
    assert first.calls[1].parent == 0


def test_a_conversation_that_was_dropped_is_not_continued() -> None:
    recording = Recording()
    recording.ask([user("a")], "b")
    other = recording.ask([user("x")], "y")
    recording.session.drop_calls(recording.session.calls[:1])
    last = recording.ask([user("a"), agent("b"), user("c")], "d")

    assert recording.session.split_conversations() == [[other], [last]]
    assert last.number == 2


def request_keys(dialect: str, **body: Any) -> tuple[tuple[str, ...], ...]:
    session = Recording().session
    return KeyReader().read_request(session.start_call(DIALECTS[dialect], body, b"", {}))


TEXT_PARTS = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"messages": [user("a")]}, {"messages": [{"role": "user", "content": TEXT_PARTS}]}),
        (
            {"messages": [{**agent("b"), "reasoning_content": "because"}]},
            {"messages": [agent("b\n")]},
        ),
        (
            {"messages": [write_message(call_tool("1", "f", a=1, b=2))]},
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {"id": "1", "function": {"name": "f", "arguments": '{"b": 2, "a":1}'}}
                        ],
                    }
                ]
            },
        ),
    ],
    ids=["cache marks", "reasoning", "spelling of arguments"],
)
def test_what_agents_change_on_the_way_back_is_not_a_difference(left: Any, right: Any) -> None:
    assert request_keys("chat", **left) == request_keys("chat", **right)


def test_the_same_conversation_has_the_same_keys_in_each_api() -> None:
    call = {"name": "f", "arguments": '{"a": 1}'}
    chat = [
        user("hi"),
        {"role": "assistant", "content": "ok", "tool_calls": [{"id": "1", "function": call}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    responses = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok"}],
        },
        {"type": "function_call", "call_id": "1", **call},
        {"type": "function_call_output", "call_id": "1", "output": "r"},
    ]
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [
        user("hi"),
        {"role": "assistant", "content": [thought, {"type": "text", "text": "ok"}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
    ]

    keys = request_keys("chat", messages=chat)

    assert request_keys("responses", input=responses) == keys
    assert request_keys("messages", messages=messages, system="s") == keys
