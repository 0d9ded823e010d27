"""The conversation of a session: how it ended, and what makes two of them the same."""

import pytest

from assay.sessions.foreign_values import parse_token_count, text_or_none
from assay.sessions.transcripts import Conversation, compute_content_id
from assay.types import Message, ModelCall, Status, ToolCall
from make import asked, said


@pytest.mark.parametrize(
    ("messages", "call", "status"),
    [
        ([asked("Hi"), said("Hi.")], ModelCall(finish_reason="stop"), Status.COMPLETED),
        ([asked("Hi"), said("Hi")], ModelCall(finish_reason="max_tokens"), Status.TRUNCATED),
        ([asked("Hi"), said("")], ModelCall(error="500"), Status.ABORTED),
        ([asked("Hi")], ModelCall(), Status.ABORTED),
        ([], ModelCall(), Status.ABORTED),
    ],
)
def test_a_session_ends_as_its_last_answer_did(
    messages: list[Message], call: ModelCall, status: Status
) -> None:
    assert Conversation(messages, [call]).to_sample("s", {}, {}).status is status


def test_sessions_that_say_the_same_have_the_same_content_id() -> None:
    first, second = (
        Conversation([asked("Hi"), said("Hi.")]).to_sample(name, {}, {}) for name in "ab"
    )

    assert first.metadata == second.metadata


def test_what_is_no_count_and_no_text_is_unknown() -> None:
    assert [parse_token_count(each) for each in (3, 0, -1, True, "3", None, float("nan"))] == [
        *(3, 0),
        *[None] * 5,
    ]
    assert [text_or_none(each) for each in ("a", "", None, 1)] == ["a", None, None, None]


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
