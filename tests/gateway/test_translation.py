"""The answers of a session as the model wrote them, restored where an agent sends them back."""

import pytest

from assay.gateway.translation import AnswerMemory
from assay.types import Message
from make import asked, said


def copy(message: Message) -> Message:
    """The same message, as an agent sends it back."""
    return Message.from_json(message.to_json_bytes())


def test_equal_answers_of_two_conversations_are_each_restored_to_their_own() -> None:
    memory, first, second = AnswerMemory(), said("ok"), said("ok")
    memory.add([asked("a?")], first)
    memory.add([asked("b?")], second)

    _, of_a, _ = memory.restore([asked("a?"), copy(first), asked("more")])
    _, of_b, _ = memory.restore([asked("b?"), copy(second), asked("more")])

    assert of_a is first
    assert of_b is second


def test_equal_answers_of_one_conversation_are_each_restored_to_their_own() -> None:
    memory, first, second = AnswerMemory(), said("ok"), said("ok")
    memory.add([asked("a?")], first)
    memory.add([asked("a?"), copy(first), asked("a?")], second)

    restored = memory.restore([asked("a?"), copy(first), asked("a?"), copy(second)])

    assert restored[1] is first
    assert restored[3] is second


def test_an_answer_in_an_edited_conversation_is_restored_and_a_changed_one_is_not() -> None:
    memory, answer = AnswerMemory(), said("ok")
    memory.add([asked("a?")], answer)

    edited = memory.restore([asked("c?"), copy(answer)])
    changed = memory.restore([asked("a?"), said("not ok")])

    assert edited[1] is answer
    assert changed[1].text == "not ok"


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.gateway.translation._MAX_ANSWERS", 4)
    memory, answers = AnswerMemory(), [said(f"answer {number}") for number in range(3)]
    for answer in answers:
        memory.add([asked("a?")], answer)

    restored = memory.restore([asked("a?"), *map(copy, answers)])

    assert restored[1] is not answers[0]
    assert restored[1] == answers[0]
    assert [restored[2] is answers[1], restored[3] is answers[2]] == [True, True]
