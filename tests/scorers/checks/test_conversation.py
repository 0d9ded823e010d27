"""A conversation as checks read it: turns, calls, and what cannot be judged."""

import pytest

from assay.formats.eval_record import to_eval_record
from assay.scorers.checks.conversation import ConversationView
from assay.types import Boundary, Failure, Message, Sample
from check_files import session
from make import answered, asked, called, said, sample


def test_turns_are_numbered_as_in_an_evaluation_record() -> None:
    reading = ConversationView(session())
    record = to_eval_record(session()).value

    assert [turn.content for turn in reading.turns] == record["request"]["contents"]
    assert [call.turn for call in reading.calls] == [
        event["turn"] for event in record["intermediate_events"]
    ]
    response = record["response"]["candidates"][0]["content"]["parts"][0]["text"]
    assert reading.response is not None
    assert reading.response.text == response


def test_a_joined_text_knows_the_turn_of_each_character() -> None:
    joined = ConversationView(session()).join_turns("model", "response_concat")

    assert joined is not None
    assert joined.text == "I look first.\n\nIt is fixed.\n\nNot quite: 3 errors remain."
    assert joined.find_turn(joined.text.index("fixed")) == 2
    assert joined.find_turn(joined.text.index("errors")) == 4
    assert joined.place == "turns 2 to 4"


def test_calls_have_their_answers_and_errors() -> None:
    first, second, third = ConversationView(session()).calls

    assert (first.name, first.output, first.error) == (
        "read",
        '{"lines": 2, "text": "helo"}',
        None,
    )
    assert (second.output, second.failed, second.marked) == ("print()", False, True)
    assert (third.output, third.error, third.failed) == (None, "no such line", True)


def test_an_answer_that_does_not_say_whether_it_failed_is_unmarked() -> None:
    plain = sample(asked("q"), said(None, called("read")), answered("Error: none"), said("a"))
    by_status = Message(
        role="tool", content="x", tool_call_id="call_1", details={"status": "error"}
    )

    (call,) = ConversationView(plain).calls
    assert (call.marked, call.failed) == (False, False)
    (call,) = ConversationView(sample(asked("q"), said(None, called("read")), by_status)).calls
    assert (call.marked, call.failed) == (True, True)


def test_a_call_without_an_answer_failed() -> None:
    (call,) = ConversationView(sample(asked("q"), said(None, called("read")))).calls

    assert (call.failed, call.marked, call.output) == (True, True, None)
    assert "interrupted" in str(call.error)


def test_reasoning_is_read_with_its_turn() -> None:
    thinking = Message(role="assistant", content="4", reasoning="2 and 2")

    (thought,) = ConversationView(sample(asked("2+2?"), thinking)).thoughts

    assert (thought.text, thought.place) == ("2 and 2", "turn 2")


def test_there_is_no_response_when_the_user_spoke_last() -> None:
    assert ConversationView(sample(asked("q"), said("a"), asked("and?"))).response is None


@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_rollout_that_failed_cannot_be_judged(boundary: Boundary) -> None:
    failure = Failure(boundary=boundary, kind="TimeoutError", message="too slow")

    why = ConversationView(session(failure=failure)).unscored_reason

    expected = "the rollout failed: TimeoutError: too slow"
    assert why == (None if boundary is Boundary.SCORER else expected)


def test_a_question_alone_cannot_be_judged() -> None:
    assert ConversationView(Sample(prompt="2+2?")).unscored_reason == "no turn by the assistant"
