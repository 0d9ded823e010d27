"""The history of agents in a Vertex row: authors, subagents, and what is reported as dropped."""

from typing import Any

import pytest

from assay.formats.eval_turns import UNANSWERED_RESPONSE
from assay.formats.vertex import from_vertex, to_vertex
from assay.formats.vertex_events import AgentHistory, to_zoned_timestamp
from assay.types import DataBlock, Message, Sample, TextBlock
from make import answered, asked, called, said, sample


def told(talk: Sample) -> AgentHistory:
    history = AgentHistory()
    history.add_sample(talk)
    return history


def kinds(history: AgentHistory) -> list[list[tuple[str, str]]]:
    return [
        [
            (event["author"], "/".join(next(iter(part)) for part in event["content"]["parts"]))
            for event in turn
        ]
        for turn in history.turns
    ]


def with_subagent() -> Sample:
    child = sample(
        asked("Count."), said(None, called("wc", "w1")), answered("4", "w1"), said("4"), id="kid"
    )
    report = Message(
        role="tool", content="4", tool_call_id="t1", name="task", details={"subagent": "kid"}
    )
    return sample(
        asked("Ask a helper."),
        said(None, called("task", "t1")),
        report,
        said("Four."),
        id="s",
        metadata={"source": "opencode", "subagents": [child.to_dict()]},
    )


def test_consecutive_user_messages_are_one_turn() -> None:
    history = told(sample(asked("One."), asked("Two."), said("Yes."), asked("Three."), said("No.")))

    assert [len(turn) for turn in history.turns] == [3, 2]


def test_a_session_may_begin_with_the_agent() -> None:
    history = told(sample(said("Hello."), asked("Hi."), said("Well?")))

    assert kinds(history) == [[("agent", "text")], [("user", "text"), ("agent", "text")]]


def test_thinking_is_marked_as_thought() -> None:
    thinking = Message(role="assistant", content="4", reasoning="2 and 2")

    event = told(sample(asked("2+2?"), thinking)).turns[0][1]

    assert event["content"]["parts"] == [{"text": "2 and 2", "thought": True}, {"text": "4"}]


def test_a_call_without_an_answer_gets_one_that_says_so() -> None:
    history = told(sample(asked("Go."), said(None, called("run")), asked("Stop."), said("Ok.")))

    part = history.turns[0][2]["content"]["parts"][0]
    assert part["function_response"]["response"] == {"error": UNANSWERED_RESPONSE}


def test_calls_without_an_id_are_matched_by_one_that_is_made_up() -> None:
    call = called("run").model_copy(update={"id": None})
    answer = Message(role="tool", content="done")

    events = told(sample(asked("Go."), said(None, call), answer, said("Ok."))).turns[0]

    assert events[1]["content"]["parts"][0]["function_call"]["id"] == "call_1"
    assert events[2]["content"]["parts"][0]["function_response"]["id"] == "call_1"


def test_events_of_a_subagent_stand_under_its_name_before_the_answer_of_its_call() -> None:
    history = told(with_subagent())

    assert kinds(history) == [
        [
            ("user", "text"),
            ("opencode", "function_call"),
            ("opencode", "text"),
            ("subagent:kid", "function_call"),
            ("subagent:kid", "function_response"),
            ("subagent:kid", "text"),
            ("opencode", "function_response"),
            ("opencode", "text"),
        ]
    ]
    assert history.agents["opencode"]["sub_agents"] == ["subagent:kid"]
    assert history.dropped == []


def test_a_subagent_comes_back_as_a_sample_of_its_own_with_its_link() -> None:
    row = to_vertex(with_subagent()).value

    back = from_vertex(row)

    assert [message.role for message in back.messages] == ["user", "assistant", "tool", "assistant"]
    assert (back.messages[2].details or {})["subagent"] == "kid"
    child = Sample.from_dict(back.metadata["subagents"][0])
    assert [message.text for message in child.messages] == ["Count.", "", "4", "4"]
    assert to_vertex(back).value == row


def test_a_subagent_that_no_call_started_is_reported() -> None:
    child = sample(asked("Warm up."), said("Ready."), id="kid").to_dict()
    alone = sample(asked("Hi"), said("Hi."), metadata={"subagents": [child]})

    losses = {loss.where: loss.what for loss in told(alone).dropped}

    assert losses == {"metadata.subagents[0]": "no call started this subagent; left out"}


def test_a_subagent_that_is_not_here_is_reported() -> None:
    talk = with_subagent()
    del talk.metadata["subagents"]

    assert [loss.where for loss in told(talk).dropped] == ["messages[2]"]


def test_what_is_not_text_is_marked_and_reported() -> None:
    block: dict[str, Any] = {"type": "file", "filename": "notes.txt"}
    content = (TextBlock(type="text", text="See:"), DataBlock.model_validate(block))
    shown = Message(role="user", content=content)

    history = told(sample(shown, said("Seen.")))

    assert history.turns[0][0]["content"]["parts"] == [{"text": "See:\n\n[file: notes.txt]"}]
    assert [loss.where for loss in history.dropped] == ["messages[0].content[1]"]


def test_answers_to_no_call_and_late_instructions_are_reported() -> None:
    late = Message(role="system", content="Now be rude.")

    history = told(sample(asked("Hi"), said("Hi."), answered("?", "c9"), late, said("Bye.")))

    assert [loss.where for loss in history.dropped] == ["messages[2]", "messages[3]"]


def test_each_message_is_of_the_agent_that_was_in_charge() -> None:
    planned = Message(role="assistant", content="A plan.", details={"agent": "plan"})
    built = Message(role="assistant", content="Built.", details={"agent": "build"})

    history = told(sample(asked("Go."), planned, asked("Do it."), built))

    assert [turn[1]["author"] for turn in history.turns] == ["plan", "build"]
    assert set(history.agents) == {"plan", "build"}


def test_times_are_written_only_where_they_are_points_in_time() -> None:
    assert to_zoned_timestamp("2026-03-01T09:00:00.000Z") == "2026-03-01T09:00:00.000Z"
    assert to_zoned_timestamp("2026-03-01T09:00:00") is None
    assert to_zoned_timestamp("yesterday") is None
    assert to_zoned_timestamp(None) is None


def test_very_many_calls_of_one_message_are_answered_in_any_order() -> None:
    names = [f"call_{number}" for number in range(20_000)]
    talk = sample(
        *[asked("Count.")] * 20_000,
        said(None, *(called("wc", name) for name in names)),
        *(answered("4", name) for name in reversed(names)),
    )

    (turn,) = told(talk).turns

    answers = [part["function_response"]["id"] for part in turn[-1]["content"]["parts"]]
    assert answers == names[::-1]


def test_an_answer_without_an_id_is_of_the_first_open_call() -> None:
    calls = said(None, called("wc", "1"), called("wc", "2"), called("wc", "2"))
    plain = Message(role="tool", content="a")

    history = told(sample(calls, plain, answered("b", "2"), answered("c", "1"), plain))

    parts = [event["content"]["parts"] for event in history.turns[0]][1:]
    given = [part["function_response"] for each in parts for part in each]
    assert [(one["id"], one["response"]["output"]) for one in given] == [
        ("1", "a"),
        ("2", "b"),
        ("2", "a"),
    ]
    assert [dropped.what for dropped in history.dropped] == ["an answer without a call; left out"]


@pytest.mark.parametrize(("failed", "word"), [(False, "output"), (True, "error")])
@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_code_is_told_and_comes_back(failed: bool, word: str, code: int) -> None:
    details = {"failed": failed, "exit_code": code}
    answer = answered("no such file").model_copy(update={"details": details})
    talk = sample(asked("Count."), said(None, called("bash")), answer, said("No."), id="s")

    row = to_vertex(talk).value
    told_of = row["agent_data"]["turns"][0]["events"][2]["content"]["parts"][0]
    (back,) = [each for each in from_vertex(row).messages if each.role == "tool"]

    response = told_of["function_response"]["response"]
    assert response == {word: "no such file", "exit_code": code}
    assert back.text == "no such file"
    assert back.details == {
        "status": "error" if failed else "completed",
        "failed": failed,
        "is_error": failed or code != 0,
        "exit_code": code,
    }


@pytest.mark.parametrize("response", [{"output": 5, "exit_code": 1}, {"a": 1, "exit_code": "x"}])
def test_an_answer_of_another_shape_is_kept_as_it_is(response: dict[str, Any]) -> None:
    answer = answered("x").model_copy(update={"details": {"response": response}})
    talk = sample(asked("Count."), said(None, called("bash")), answer, said("No."), id="s")

    (back,) = [each for each in from_vertex(to_vertex(talk).value).messages if each.role == "tool"]

    assert (back.details or {})["response"] == response
    assert "exit_code" not in (back.details or {})
