"""Records of Claude Code as messages, one oddity at a time."""

from typing import Any

import pytest

from assay.errors import BadRow
from assay.sessions import SampleOptions
from assay.sessions.claude_code_conversation import ClaudeConversation
from assay.sessions.session_choice import SessionMeta
from assay.sessions.transcripts import Conversation


def talk(*records: dict[str, Any]) -> Conversation:
    reader = ClaudeConversation(meta=SessionMeta(id="s"), options=SampleOptions(), apart={})
    for record in records:
        reader.take(record)
    return reader.finish()


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": "u", "message": {"role": "user", "content": content}, **more}


def agent(content: Any, name: str | None = "m1", **more: Any) -> dict[str, Any]:
    message = {"id": name, "role": "assistant", "model": "claude", "content": content, **more}
    return {"type": "assistant", "uuid": "a", "message": message}


def test_blocks_of_one_answer_are_one_message_though_results_stand_between_them() -> None:
    def use(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}

    def result(call_id: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": call_id}

    found = talk(
        user("Hi"), agent([use("1")]), user([result("1")]), agent([use("2")]), user([result("2")])
    )

    assert [message.role for message in found.messages] == ["user", "assistant", "tool", "tool"]
    assert [call.id for call in found.messages[1].tool_calls] == ["1", "2"]
    assert [message.name for message in found.messages[2:]] == ["Read", "Read"]
    assert len(found.calls) == 1


def test_the_last_usage_of_an_answer_is_the_one_that_counts() -> None:
    text = [{"type": "text", "text": "x"}]
    early = agent(text, usage={"input_tokens": 5, "output_tokens": 1})
    late = agent(text, usage={"input_tokens": 5, "output_tokens": 9}, stop_reason="end_turn")

    call = talk(user("Hi"), early, late).calls[0]

    assert call.usage is not None
    assert (call.usage.output_tokens, call.finish_reason) == (9, "end_turn")


def test_an_answer_without_usage_has_none() -> None:
    assert talk(user("Hi"), agent("Hello")).calls[0].usage is None


def test_images_of_the_user_are_kept() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    found = talk(user([{"type": "text", "text": "See"}, {"type": "image", "source": source}]))

    assert isinstance(found.messages[0].content, tuple)
    assert [block.type for block in found.messages[0].content] == ["text", "image_url"]


def test_blocks_of_unknown_types_are_kept() -> None:
    found = talk(agent([{"type": "server_tool_thing", "data": 1}]))

    assert isinstance(found.messages[0].content, tuple)
    assert found.messages[0].content[0].type == "server_tool_thing"


def test_a_command_that_the_program_answered_itself_is_no_turn() -> None:
    found = talk(
        user("<command-name>/cost</command-name>\n<command-args></command-args>"),
        user("<local-command-stdout>$1</local-command-stdout>"),
        agent("Hello"),
    )

    assert [message.role for message in found.messages] == ["assistant"]


def queued(prompt: Any, **more: Any) -> dict[str, Any]:
    attachment = {"type": "queued_command", "prompt": prompt, **more}
    return {"type": "attachment", "uuid": "q", "attachment": attachment}


def test_what_was_typed_while_tools_ran_comes_after_their_results() -> None:
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ab"]

    found = talk(
        user("Go"), agent(calls), user(results[:1]), queued("And blue."), user(results[1:])
    )

    assert [(each.role, each.text) for each in found.messages][2:] == [
        ("tool", "a"),
        ("tool", "b"),
        ("user", "And blue."),
    ]


def test_a_result_without_its_call_stays_where_it_is() -> None:
    stray = {"type": "tool_result", "tool_use_id": "gone", "content": "x"}

    found = talk(user("Go"), agent("Yes."), user("More"), user([stray]))

    assert [each.role for each in found.messages] == ["user", "assistant", "user", "tool"]


def test_a_task_that_ends_while_the_agent_works_is_told_of_in_the_queue() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    started = user([{"type": "tool_result", "tool_use_id": "t1", "content": "in background"}])
    started["toolUseResult"] = {"backgroundTaskId": "b7"}
    ended = "<task-notification>\n<task-id>b7</task-id>\n<status>killed</status>"

    found = talk(user("Go"), agent([call]), started, queued(ended, commandMode="task-notification"))

    assert found.messages[-1].metadata == {
        "kind": "task_notification",
        "tool_call_id": "t1",
        "task_id": "b7",
        "status": "killed",
    }
    assert [each.role for each in found.messages].count("tool") == 1


def test_a_command_that_the_program_answered_in_a_record_of_its_own_is_no_turn() -> None:
    command = user("<command-name>/compact</command-name>")
    answered = {"type": "system", "subtype": "local_command", "content": "x"}

    found = talk(command, answered, agent("Hello"))

    assert [message.role for message in found.messages] == ["assistant"]


def test_an_exit_code_of_absurd_length_is_unknown() -> None:
    text = "Exit code " + "9" * 5000
    result = {"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": True}

    assert "exit_code" not in (talk(user([result])).messages[0].details or {})


def test_answers_that_the_program_made_up_are_put_aside() -> None:
    made_up = agent([{"type": "text", "text": "No response requested."}])
    made_up["message"]["model"] = "<synthetic>"

    found = talk(user("Hi"), made_up)

    assert [message.role for message in found.messages] == ["user"]
    assert found.skipped[0]["why"] == "written by the program"


def test_what_a_record_says_beside_its_message_is_kept() -> None:
    found = talk(user("Hi", permissionMode="plan", cwd="/srv"))

    assert found.messages[0].details == {"id": "u", "record": {"permissionMode": "plan"}}


def test_a_block_that_cannot_be_read_names_its_session() -> None:
    with pytest.raises(BadRow, match="session s"):
        talk(agent([{"type": "tool_use", "id": "1", "input": {}}]))
