"""What a judge is shown of a sample: everything on its own line, and nothing cut in silence."""

import json
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.scorers.judges.evidence import QuoteIndex
from assay.scorers.judges.judged_transcript import TranscriptTooLong, render_transcript
from assay.types import Message, Sample
from make import answered, asked, called, said, sample

UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")
"""Categories of characters that leave no mark of their own: controls, marks of format, spaces."""


def test_each_message_is_one_numbered_line_of_json() -> None:
    shown = render_transcript(
        sample(
            asked("List it."),
            said("Looking.", called("ls", path="src")),
            answered("a.py"),
            said("Done."),
        ),
        longest=10_000,
    )

    lines = [json.loads(line) for line in shown.lines]
    assert lines[1] == {
        "turn": 2,
        "role": "assistant",
        "text": "Looking.",
        "tool_calls": [{"name": "ls", "arguments": '{"path":"src"}'}],
    }
    assert lines[2] == {"turn": 3, "role": "tool", "tool": "ls", "text": "a.py"}
    assert shown.left_out == 0


@given(st.text(), st.text())
def test_no_text_can_begin_a_line_or_hide_in_one(user: str, answer: str) -> None:
    shown = render_transcript(sample(asked(user), said(answer)), longest=10_000)

    assert len("\n".join(shown.lines).splitlines()) == 2
    assert all(line.isprintable() for line in shown.lines)


def test_hidden_characters_are_shown_as_their_numbers() -> None:
    shown = render_transcript(sample(asked("x"), said("a\u202eb\U000e0041c\x7f")), longest=10_000)

    assert r"a\u202eb\udb40\udc41c\u007f" in shown.lines[1]


def test_every_character_that_leaves_no_mark_is_shown_as_its_number() -> None:
    blank = "\u034f\u115f\u17b4\u180b\u2800\u3164\ufe0f\uffa0\ufffc\U000e01ef"
    every = map(chr, range(sys.maxunicode + 1))
    unseen = blank + "".join(each for each in every if category(each) in UNSEEN and each != " ")

    line = render_transcript(sample(asked("x"), said(unseen)), longest=10_000).lines[1]

    assert not set(line) & set(unseen)
    assert json.loads(line)["text"] == unseen


def test_reasoning_and_reference_are_shown_only_when_asked_for() -> None:
    thinking = Message(role="assistant", content="4", reasoning="two and two")
    given_ = sample(asked("2+2"), thinking, ground_truth={"answer": 4})

    plain = render_transcript(given_, longest=10_000)
    full = render_transcript(given_, longest=10_000, reasoning=True, reference=True)

    assert "two and two" not in "".join(plain.lines)
    assert json.loads(full.lines[0]) == {"reference": '{"answer": 4}'}
    assert json.loads(full.lines[2])["reasoning"] == "two and two"


def test_what_is_no_text_is_named() -> None:
    picture = Message.model_validate(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    )

    shown = render_transcript(sample(picture, said("A cat.")), longest=10_000)

    assert json.loads(shown.lines[0])["not_shown"] == ["image_url"]


def test_the_longest_texts_are_cut_first_and_say_so() -> None:
    shown = render_transcript(
        sample(asked("short"), said("x" * 50_000), said("end")), longest=10_000
    )

    assert sum(map(len, shown.lines)) < 10_200
    assert "characters are not shown" in shown.lines[1]
    assert shown.left_out > 40_000
    assert json.loads(shown.lines[0])["text"] == "short"
    assert len(shown.turns[1].text) == 50_000


def test_too_many_messages_are_refused_rather_than_dropped() -> None:
    with pytest.raises(TranscriptTooLong):
        render_transcript(sample(*[said("word " * 20)] * 1000), longest=5_000)
    with pytest.raises(TranscriptTooLong):
        render_transcript(sample(*[said("")] * 1000), longest=5_000)


def test_what_was_recorded_of_a_tool_call_is_shown() -> None:
    failed = answered("boom").model_copy(
        update={"details": {"failed": False, "is_error": True, "exit_code": 2}}
    )
    fine = answered("ok").model_copy(update={"details": {"status": "completed"}})

    shown = render_transcript(
        sample(asked("q"), said(None, called("ls")), failed, fine), longest=10_000
    )

    lines = [json.loads(line) for line in shown.lines]
    assert (lines[2]["failed"], lines[2]["exit_code"]) == (True, 2)
    assert lines[3]["failed"] is False
    assert "exit_code" not in lines[3]


def with_subagents(*texts: str) -> Sample:
    grandchild = sample(asked("dig"), said("found gold"), id="ses_deep")
    children = [sample(asked("find"), said(text), id=f"ses_{text[:1]}") for text in texts]
    children[0].metadata["subagents"] = [grandchild.to_dict()]
    return sample(
        asked("Go"), said("Gone."), metadata={"subagents": [each.to_dict() for each in children]}
    )


def test_sessions_of_subagents_follow_with_numbers_of_their_own() -> None:
    shown = render_transcript(with_subagents("a1", "b2"), longest=10_000)

    lines = [json.loads(line) for line in shown.lines]
    assert [line["turn"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [line.get("subagent") for line in lines] == [
        *(None, None),
        *("ses_a", "ses_a"),
        *("ses_deep", "ses_deep"),
        *("ses_b", "ses_b"),
    ]
    assert QuoteIndex(shown).find("found gold").turns == (6,)
    alone = render_transcript(with_subagents("a1", "b2"), longest=10_000, subagents=False)
    assert alone.lines == shown.lines[:2]


def test_subagents_that_do_not_fit_are_left_out_and_counted() -> None:
    shown = render_transcript(with_subagents(*("x" * 300 for _ in range(50))), longest=5_000)

    assert len(shown.turns) == 2
    assert shown.subagents_left_out == 51
    assert json.loads(shown.lines[-1]) == {"not_shown": "sessions of 51 subagents"}


def test_a_damaged_session_of_a_subagent_is_counted() -> None:
    given_ = sample(asked("q"), said("a"))
    given_.metadata["subagents"] = [{"trajectory": 5}]

    assert render_transcript(given_, longest=10_000).subagents_left_out == 1


def test_subagents_behind_a_damaged_one_are_shown() -> None:
    given_ = with_subagents("a1")
    given_.metadata["subagents"][:0] = [{"trajectory": 5}, {"id": "ses_x", "title": "Find it"}]

    shown = render_transcript(given_, longest=10_000)

    assert [turn.agent for turn in shown.turns][2:] == ["ses_a", "ses_a", "ses_deep", "ses_deep"]
    assert shown.subagents_left_out == 2
