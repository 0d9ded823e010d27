"""Rows for Fireworks' reinforcement fine-tuning: OpenAI's messages, and evaluator fields."""

from collections.abc import Mapping
from typing import Any

from assay.types import Sample

from .conversion import Converted, Dropped, expect_mapping
from .openai_finetuning import from_openai_finetuning, to_openai_rft

_FIREWORKS_KEYS = {"reference_answer": "ground_truth", "sample_id": "id"}


def to_fireworks_rft(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `messages` and `tools`, and `ground_truth` and `id` for the evaluator."""
    converted = to_openai_rft(sample)
    row = {_FIREWORKS_KEYS.get(key, key): value for key, value in converted.value.items()}
    # OpenAI's rows may name the speaker of a message; Fireworks' schema has no such key.
    named = [n for n, message in enumerate(row["messages"]) if "name" in message]
    dropped = (Dropped(f"messages[{n}].name", "no place for `name`; left out") for n in named)
    row["messages"] = [
        {key: value for key, value in message.items() if key != "name"}
        for message in row["messages"]
    ]
    return Converted(row, (*converted.dropped, *dropped))


def from_fireworks_rft(row: Mapping[str, Any]) -> Sample:
    """Read the sample of a row: a prompt and its ground truth."""
    data = dict(expect_mapping(row, "row"))
    for name, own in _FIREWORKS_KEYS.items():
        data[name] = data.pop(own, None)
    return from_openai_finetuning(data)[0]
