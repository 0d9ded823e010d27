"""What makes two sessions the same: words and calls, not ids and times."""

from assay.sessions.content_ids import compute_content_id
from assay.types import Message, ToolCall
from make import asked, said


def called(call_id: str, command: str) -> Message:
    call = ToolCall(id=call_id, name="bash", arguments={"command": command})
    return Message(role="assistant", tool_calls=[call])


def test_a_copy_under_other_ids_is_the_same() -> None:
    one = [asked("a"), called("1", "ls"), said("b")]
    copy = [asked("a").model_copy(update={"timestamp": "later"}), called("2", "ls"), said("b")]

    assert compute_content_id(one) == compute_content_id(copy)


def test_other_words_roles_or_arguments_are_another_session() -> None:
    made = [[asked("a")], [asked("b")], [said("a")], [called("1", "ls")], [called("1", "rm")], []]

    assert len({compute_content_id(messages) for messages in made}) == len(made)
