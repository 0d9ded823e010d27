"""Messages cut into the answers of the model they are made of."""

from assay.sessions.opencode.step_parts import drop_container_ids, split_steps
from opencode_archives import text, tool

START = {"type": "step-start"}


def test_a_message_of_several_steps_is_cut_at_their_starts() -> None:
    finish = {"type": "step-finish", "reason": "stop"}
    steps = split_steps([START, text("a"), tool("x"), finish, START, text("b"), finish])

    assert [step.texts for step in steps] == [["a"], ["b"]]
    assert [len(step.tools) for step in steps] == [1, 0]
    assert all(step.started and step.finish == finish for step in steps)


def test_a_message_without_parts_is_one_empty_step() -> None:
    (step,) = split_steps([])

    assert not step.has_content
    assert not step.started


def test_kinds_that_are_not_known_are_kept_in_order() -> None:
    (step,) = split_steps([{"type": "hologram", "x": 1}, {"type": "patch", "files": []}])

    assert step.others == [{"type": "hologram", "x": 1}, {"type": "patch", "files": []}]


def test_ignored_texts_are_not_said() -> None:
    (step,) = split_steps([text("shown only", ignored=True)])

    assert step.texts == []
    assert step.others[0]["text"] == "shown only"


def test_what_a_provider_attached_to_a_text_is_kept_without_the_text() -> None:
    (step,) = split_steps([{"type": "reasoning", "text": "hm", "metadata": {"signature": "s"}}])

    assert step.reasoning == ["hm"]
    assert step.others == [{"type": "reasoning", "metadata": {"signature": "s"}}]


def test_places_are_not_kept() -> None:
    assert drop_container_ids({"id": "p", "sessionID": "s", "messageID": "m"}) == {"id": "p"}
