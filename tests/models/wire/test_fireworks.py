"""Rows of Fireworks' reinforcement fine-tuning."""

from assay.models import Sample
from assay.models.wire.fireworks import from_fireworks_rft, to_fireworks_rft
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
