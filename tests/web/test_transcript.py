"""Turns: calls with their results, pages that are bounded, and the rest of long texts."""

import pytest

from assay.types import Message, ToolCall
from assay.web.transcript import TURNS_PER_PAGE, TranscriptOptions, TranscriptView, read_part
from make import answered, asked, called, said

NOTHING = TranscriptOptions()


def test_a_result_belongs_to_the_call_that_asked_for_it() -> None:
    messages = [
        asked("Go."),
        said(None, called("a", "1"), called("b", "2")),
        answered("second", "2"),
        answered("first", "1"),
        said(None, called("a", "1")),
        answered("third", "1"),
    ]

    turns = TranscriptView(messages).build_page(0, NOTHING).turns

    assert [turn.number for turn in turns] == [1, 2, 5]
    results = [[each.text.text for each in call.results if each.text] for call in turns[1].calls]
    assert results == [["first"], ["second"]]
    assert turns[2].calls[0].results[0].number == 6


def test_results_without_an_id_are_paired_in_order() -> None:
    calls = [ToolCall(name="a"), ToolCall(name="b")]
    unnamed = [Message(role="tool", content=text) for text in ("1", "2", "3")]

    turns = TranscriptView([said(None, *calls), *unnamed]).build_page(0, NOTHING).turns

    assert [call.results[0].number for call in turns[0].calls] == [2, 3]
    assert turns[1].result is not None
    assert turns[1].number == 4


def test_pages_are_bounded_and_every_turn_is_on_one() -> None:
    transcript = TranscriptView([asked(str(number)) for number in range(120)])
    seen: list[int] = []
    first: int | None = 0

    while first is not None:
        page = transcript.build_page(first, NOTHING)
        assert len(page.turns) <= TURNS_PER_PAGE
        seen += [turn.number for turn in page.turns]
        first = page.next

    assert seen == list(range(1, 121))


def test_long_texts_are_cut_with_a_place_to_continue() -> None:
    messages = [asked("x" * 1_000_000) for _ in range(40)]

    page = TranscriptView(messages).build_page(0, NOTHING)

    texts = [turn.text for turn in page.turns if turn.text is not None]
    assert sum(len(text.text) for text in texts) < 500_000
    assert all(text.next_offset == len(text.text) and text.chars == 1_000_000 for text in texts)
    assert all(text.text for text in texts)


def test_parts_are_read_in_full() -> None:
    message = Message(
        role="assistant",
        content="answer",
        reasoning="thought",
        tool_calls=[called("bash", command="a\nb", options={"x": 1})],
    )

    assert read_part(message, "text") == "answer"
    assert read_part(message, "reasoning") == "thought"
    assert read_part(message, "argument-0-0") == "a\nb"
    assert read_part(message, "argument-0-1") == '{\n  "x": 1\n}'


@pytest.mark.parametrize(
    "part", ["", "argument-1-0", "argument-0-9", "argument-x", "file-0", "other"]
)
def test_an_unknown_part_is_none(part: str) -> None:
    assert read_part(said("x", called("a", b="c")), part) is None


def test_malformed_arguments_are_shown_as_written() -> None:
    call = ToolCall.model_validate({"name": "a", "arguments": "{not json"})

    shown = TranscriptView([said(None, call)]).build_page(0, NOTHING).turns[0].calls[0]

    assert shown.malformed
    assert shown.arguments[0].value.text == "{not json"


def test_a_search_reads_all_texts() -> None:
    messages = [
        asked("nothing"),
        Message(role="assistant", content=None, reasoning="the LAMP"),
        said(None, called("find", thing="lamp")),
        answered("a lamp"),
    ]

    assert TranscriptView(messages).find_matches("Lamp") == [2, 3, 4]
