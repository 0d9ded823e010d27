"""From a stored session to a sample: what is the conversation, and what stands beside it."""

from typing import Any

import pytest

from assay.sessions.opencode.archive import StoredMessage
from assay.sessions.opencode.convert import convert_session
from assay.sessions.session_choice import SampleOptions
from assay.types import DataBlock, Sample, Status, TextBlock
from opencode_archives import agent, session, text, tool, user

COMPACTION = {"type": "compaction", "auto": True}
SYNTHETIC = text("The following tool was executed by the user", synthetic=True)
NOTHING_COUNTED = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
SHELL = StoredMessage(
    {"role": "assistant", "tokens": NOTHING_COUNTED},
    [tool("bash", input={"command": "ls"}, output="a.py", metadata={"exit": 0})],
)


def read(*messages: StoredMessage, **info: object) -> Sample:
    return convert_session(session(*messages, **info), SampleOptions())  # type: ignore[arg-type]  # id=


def roles(sample: Sample) -> list[str]:
    return [message.role for message in sample.messages]


def test_a_turn_with_a_tool_is_asked_called_answered_and_said() -> None:
    sample = read(
        user(text("what is here?")),
        agent(text("looking"), tool("ls", input={"path": "."}, output="a.py"), finish="tool-calls"),
        agent(text("a.py is here")),
    )

    assert roles(sample) == ["user", "assistant", "tool", "assistant"]
    called, answer = sample.messages[1:3]
    assert called.tool_calls[0].id == answer.tool_call_id
    assert sample.prompt == sample.messages[:1]
    assert sample.response == "a.py is here"
    assert sample.status is Status.COMPLETED
    assert sample.trajectory is not None
    assert (sample.trajectory.termination_reason, sample.trajectory.steps) == ("stop", 2)
    assert sample.trajectory.duration == 1.0


def test_the_session_names_the_sample_and_what_it_is() -> None:
    sample = read(user(text("hi")), title="T")

    assert sample.id == "ses_1"
    assert sample.input["title"] == "T"
    assert sample.input["created"] == "2026-11-15T18:06:40.000Z"
    assert sample.metadata["info"]["version"] == "1.18.33"


def test_reasoning_stands_apart_from_what_is_said() -> None:
    sample = read(user(text("?")), agent({"type": "reasoning", "text": "hm"}, text("yes")))

    assert (sample.messages[1].reasoning, sample.messages[1].text) == ("hm", "yes")


def test_each_answer_of_the_model_is_a_call_with_its_usage() -> None:
    tokens = {"total": 30, "input": 20, "output": 10, "reasoning": 0, "cache": {"read": 0}}
    finish = {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.5}
    sample = read(user(text("?")), agent(text("yes"), finish))

    assert sample.trajectory is not None
    (call,) = sample.trajectory.calls
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.cost_usd) == (20, 10, 0.5)
    assert (call.model, call.message_index, call.finish_reason) == ("m", 1, "stop")


def test_steps_of_one_old_message_become_messages_of_their_own() -> None:
    step = {"type": "step-start"}
    sample = read(
        user(text("?")),
        agent(tool("ls", output="a"), step, text("done"), tokens={"input": 5, "output": 2}),
        version="0.1.174",
    )

    assert roles(sample) == ["user", "assistant", "tool", "assistant"]
    assert [(m.details or {}).get("step") for m in sample.messages[1:]] == [None, None, 1]
    assert sample.trajectory is not None
    first, last = sample.trajectory.calls
    # What the first step used was never stored.
    assert first.usage is None
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.cost_usd) == (5, None)


def test_text_that_was_not_typed_is_not_the_users() -> None:
    parts = (text("context", synthetic=True), text("never sent", ignored=True), text(" typed \n"))
    sample = read(user(*parts))

    (message,) = sample.messages
    assert message.content == "typed"
    kept = (message.details or {})["parts"]
    assert [part["text"] for part in kept] == ["context", "never sent"]


def test_synthetic_text_is_kept_when_asked_for() -> None:
    made = session(user(text("context", synthetic=True), text("typed")))

    sample = convert_session(made, SampleOptions(synthetic=True))

    assert sample.messages[0].content == "context\n\ntyped"


def attached(name: str, mime: str = "text/plain") -> dict[str, Any]:
    return {"type": "file", "mime": mime, "filename": name, "url": f"file:///{name}"}


def named(block: TextBlock | DataBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    return str((block.__pydantic_extra__ or {})["filename"])


@pytest.mark.parametrize("role", ["user", "agent"])
def test_texts_and_files_keep_their_order(role: str) -> None:
    parts = (
        text("Compare "),
        attached("a.txt"),
        text(" with"),
        text("this:"),
        attached("b.png", "image/png"),
        attached("c.png", "image/png"),
        text("."),
    )
    sample = read(user(*parts)) if role == "user" else read(user(text("Hi")), agent(*parts))

    content = sample.messages[-1].content
    assert isinstance(content, tuple)
    order = ["Compare ", "a.txt", " with\n\nthis:", "b.png", "c.png", "."]
    assert [named(block) for block in content] == order


def test_a_file_may_come_first() -> None:
    sample = read(user(attached("a.png", "image/png"), text("What is this?")))

    content = sample.messages[0].content
    assert isinstance(content, tuple)
    assert [named(block) for block in content] == ["a.png", "What is this?"]


def test_an_attached_file_is_kept_though_nothing_was_typed() -> None:
    file = {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///a.txt"}
    sample = read(user(text("Called the Read tool", synthetic=True), file))

    content = sample.messages[0].content
    assert isinstance(content, tuple)
    (block,) = content
    assert isinstance(block, DataBlock)
    assert (block.type, (block.__pydantic_extra__ or {})["filename"]) == ("file", "a.txt")


def test_a_message_in_which_nothing_was_typed_is_skipped_and_kept_aside() -> None:
    sample = read(user(text("go on", synthetic=True)), agent(text("ok")))

    assert roles(sample) == ["assistant"]
    (skipped,) = sample.metadata["skipped"]
    assert (skipped["id"], skipped["why"]) == ("msg_0", "nothing in it was typed")
    assert skipped["parts"][0]["text"] == "go on"


def test_a_compaction_is_counted_and_not_part_of_the_conversation() -> None:
    sample = read(
        user(text("a")),
        agent(text("b")),
        user(COMPACTION),
        agent(text("Summary: ..."), summary=True),
        user(text("c")),
        agent(text("d")),
    )

    assert [message.text for message in sample.messages] == ["a", "b", "c", "d"]
    assert sample.metadata["compactions"] == 1
    assert [each["why"] for each in sample.metadata["skipped"]] == [
        "compaction",
        "compaction summary",
    ]


def test_the_tokens_of_a_compaction_count_without_a_place_in_the_conversation() -> None:
    tokens = {"input": 7, "output": 2}
    sample = read(
        user(text("a")),
        agent(text("cut"), finish="length"),
        user(COMPACTION),
        agent(text("Summary"), summary=True, tokens=tokens, cost=0.5, finish="stop"),
        agent(text("b"), system=["Be brief."], finish="length"),
        user(COMPACTION),
        agent(text("Summary"), summary=True, tokens=tokens, cost=0.25, finish="stop"),
    )

    assert sample.trajectory is not None
    assert [
        (call.purpose, call.message_index, call.usage and call.usage.cost_usd)
        for call in sample.trajectory.calls
    ] == [("turn", 2, None), ("summary", None, 0.5), ("turn", 3, None), ("summary", None, 0.25)]
    # The summary ended well, but the conversation did not.
    assert sample.status is Status.TRUNCATED
    assert (sample.trajectory.termination_reason, sample.trajectory.steps) == ("length", 2)


def test_a_shell_command_of_the_user_is_not_the_agents() -> None:
    sample = read(user(text("a")), agent(text("b")), user(SYNTHETIC), SHELL)

    assert roles(sample) == ["user", "assistant"]
    (shell,) = sample.metadata["user_shell"]
    assert (shell["args"], shell["output"], shell["exit_code"]) == ({"command": "ls"}, "a.py", 0)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (user(text("list them")), SHELL),
        (user(SYNTHETIC), agent(tool("bash", output=""))),
        (user(SYNTHETIC), StoredMessage({**SHELL.info, "tokens": {"input": 3}}, SHELL.parts)),
    ],
    ids=["typed", "a step", "tokens"],
)
def test_a_tool_of_the_agent_is_not_taken_for_the_users(
    asked: StoredMessage, answer: StoredMessage
) -> None:
    assert "tool" in roles(read(asked, answer))


def test_what_was_undone_is_left_out_unless_asked_for() -> None:
    made = session(user(text("a")), agent(text("b")), user(text("c")))
    made.info["revert"] = {"messageID": "msg_2"}

    sample = convert_session(made, SampleOptions())
    whole = convert_session(made, SampleOptions(keep_reverted=True))

    assert roles(sample) == ["user", "assistant"]
    assert sample.metadata["reverted_messages"] == ["msg_2"]
    assert roles(whole) == ["user", "assistant", "user"]


def test_a_failed_answer_is_a_turn_without_words() -> None:
    error = {"name": "APIError", "data": {"message": "bad", "responseHeaders": {"x": "y"}}}
    sample = read(user(text("a")), StoredMessage({"role": "assistant", "error": error}, []))

    failed = sample.messages[1]
    assert failed.text == ""
    assert (failed.details or {})["error"] == {"name": "APIError", "data": {"message": "bad"}}
    assert sample.status is Status.ABORTED
    assert sample.trajectory is not None
    assert sample.trajectory.calls[0].error == "APIError: bad"


@pytest.mark.parametrize(
    ("finish", "status"),
    [("stop", Status.COMPLETED), ("length", Status.TRUNCATED), ("tool-calls", Status.ABORTED)],
)
def test_how_the_last_answer_ended_is_the_status(finish: str, status: Status) -> None:
    assert read(user(text("a")), agent(text("b"), finish=finish)).status is status


def test_a_session_that_ends_with_the_user_was_aborted() -> None:
    assert read(user(text("a")), agent(text("b")), user(text("c"))).status is Status.ABORTED


def test_calls_that_share_an_id_are_told_apart() -> None:
    sample = read(
        user(text("a")), agent(tool("x", output="1")), agent(tool("y", output="2"), text("b"))
    )

    ids = [call.id for message in sample.messages for call in message.tool_calls]
    assert ids == ["call_1", "prt_2_1"]
    assert [m.tool_call_id for m in sample.messages if m.role == "tool"] == ids
    answer = sample.messages[-1]
    assert (answer.details or {})["call_id"] == "call_1"


def test_parts_that_are_not_known_survive() -> None:
    odd = {"type": "hologram", "beam": [1, 2]}
    sample = read(user(text("a"), odd), agent(text("b"), odd))

    for message in sample.messages:
        kept = (message.details or {})["parts"]
        assert any(part["type"] == "hologram" and part["beam"] == [1, 2] for part in kept)
    assert Sample.from_json(sample.to_json()) == sample


def test_a_message_of_another_role_is_kept_aside() -> None:
    sample = read(user(text("a")), StoredMessage({"role": "oracle"}, [text("b")]))

    assert sample.metadata["skipped"][0]["why"] == "neither of the user nor of the assistant"


def test_a_stored_system_prompt_goes_first_and_a_changed_one_is_kept() -> None:
    sample = read(
        user(text("a")),
        agent(text("b"), system=["be brief"]),
        agent(text("c"), system=["be brief"]),
        agent(text("d"), system=["be long"]),
    )

    assert roles(sample)[:2] == ["system", "user"]
    changed = [(m.details or {}).get("system") for m in sample.messages[2:]]
    assert changed == [None, None, "be long"]
    assert sample.trajectory is not None
    assert [call.message_index for call in sample.trajectory.calls] == [2, 3, 4]


def test_a_fork_says_the_same() -> None:
    one = read(user(text("a")), agent(text("b")))
    fork = read(user(text("a"), id="msg_8"), agent(text("b"), id="msg_9"), id="ses_2")
    other = read(user(text("a")), agent(text("c")))

    assert one.metadata["content_id"] == fork.metadata["content_id"]
    assert one.metadata["content_id"] != other.metadata["content_id"]


def test_a_message_of_very_many_texts_is_joined_in_one_pass() -> None:
    many = 100_000

    sample = read(user(*[text(" some words ")] * many), agent(text("Done.")))

    assert sample.messages[0].text == "\n\n".join(["some words"] * many)


def test_texts_around_a_blank_one_are_neighbours() -> None:
    blank = agent(text("a "), text(" "), text(" b"), attached("a.txt"))

    sample = read(user(text("Hi")), blank)

    assert sample.messages[1].text == "a\n\nb"
