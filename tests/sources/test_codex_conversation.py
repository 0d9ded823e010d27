"""Items of Codex as messages, one oddity at a time."""

from typing import Any

from assay.models import Status
from assay.sources.codex_conversation import CodexConversation
from assay.sources.opencode import SampleOptions
from assay.sources.transcripts import Conversation


def talk(*records: dict[str, Any]) -> Conversation:
    reader = CodexConversation(SampleOptions(), {"model_provider": "openai"}, [])
    for record in records:
        reader.take(record)
    return reader.finished()


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **payload}}


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


def says(role: str, text: str) -> dict[str, Any]:
    return item("message", role=role, content=[{"type": "input_text", "text": text}])


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return item("function_call", name="shell", arguments=arguments, call_id=call_id)


def test_items_of_one_answer_are_one_message() -> None:
    found = talk(says("user", "Hi"), says("assistant", "I look."), call("1"), call("2"))

    assert [message.role for message in found.messages] == ["user", "assistant"]
    assert [each.id for each in found.messages[1].tool_calls] == ["1", "2"]


def test_arguments_that_are_no_json_are_kept_as_the_model_wrote_them() -> None:
    made = talk(call("1", '{"cmd": ')).messages[0].tool_calls[0]

    assert made.malformed
    assert made.raw_arguments == '{"cmd": '


def test_outputs_may_be_objects_or_lists() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    found = talk(
        call("1"),
        call("2"),
        item("function_call_output", call_id="1", output={"content": "no", "success": False}),
        item("function_call_output", call_id="2", output=[image]),
    )

    first, second = found.messages[1:]
    assert (first.text, (first.details or {})["failed"]) == ("no", True)
    assert isinstance(second.content, tuple)
    assert second.content[0].type == "image_url"


def test_reasoning_that_only_the_provider_can_read_is_kept_beside() -> None:
    hidden = item("reasoning", summary=[], encrypted_content="gAAA")

    message = talk(hidden, says("assistant", "Done.")).messages[0]

    assert message.reasoning is None
    assert (message.details or {})["reasoning_items"][0]["encrypted_content"] == "gAAA"


def test_an_aborted_turn_makes_an_aborted_session_until_the_user_goes_on() -> None:
    stopped = talk(says("user", "Go"), says("assistant", "I go"), event("turn_aborted"))
    gone_on = talk(
        says("user", "Go"),
        event("turn_aborted"),
        says("user", "<turn_aborted>stopped</turn_aborted>"),
        says("user", "Again"),
        says("assistant", "Done."),
    )

    assert stopped.to_sample("s", {}, {}).status is Status.ABORTED
    assert gone_on.to_sample("s", {}, {}).status is Status.COMPLETED


def test_an_error_of_the_endpoint_is_a_call_without_an_answer() -> None:
    found = talk(says("user", "Go"), event("error", message="quota exceeded"))

    assert found.calls[0].error == "quota exceeded"
    assert found.to_sample("s", {}, {}).status is Status.ABORTED


def test_a_count_without_numbers_is_no_measurement() -> None:
    found = talk(says("assistant", "Hi"), event("token_count", info=None))

    assert found.calls[0].usage is None


def test_rolling_back_more_turns_than_there_are_takes_back_all() -> None:
    found = talk(
        says("user", "Hi"), says("assistant", "Hi."), event("thread_rolled_back", num_turns=9)
    )

    assert found.messages == []
    assert len(found.reverted) == 2


def test_a_roll_back_without_a_number_takes_back_nothing() -> None:
    assert len(talk(says("user", "Hi"), event("thread_rolled_back")).messages) == 1


def test_a_second_session_meta_is_kept_as_it_is() -> None:
    meta = {"type": "session_meta", "payload": {"id": "s"}}

    assert talk(meta, meta).records == [meta]


def test_a_shell_call_of_the_provider_is_a_tool_call() -> None:
    action = {"type": "exec", "command": ["ls"]}

    made = talk(item("local_shell_call", call_id="1", action=action)).messages[0].tool_calls[0]

    assert (made.name, made.arguments) == ("local_shell", action)
