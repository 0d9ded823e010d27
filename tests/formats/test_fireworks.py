"""Rows of Fireworks' reinforcement fine-tuning."""

from assay.formats.fireworks import from_fireworks_rft, to_fireworks_rft
from assay.types import Message, Sample
from make import asked


def test_a_prompt_comes_back_with_its_ground_truth_and_id() -> None:
    given = Sample(id="a", prompt="3 * 4?", ground_truth="12")

    row = to_fireworks_rft(given).exact()

    assert row == {
        "messages": [{"role": "user", "content": "3 * 4?"}],
        "ground_truth": "12",
        "id": "a",
    }
    read = from_fireworks_rft(row)
    assert (read.id, read.ground_truth, read.messages) == ("a", "12", [asked("3 * 4?")])


def test_names_have_no_place_in_its_messages_and_are_reported() -> None:
    converted = to_fireworks_rft(Sample(prompt=[Message(role="user", content="?", name="Ann")]))

    assert converted.value["messages"] == [{"role": "user", "content": "?"}]
    assert [loss.where for loss in converted.dropped] == ["messages[0].name"]
