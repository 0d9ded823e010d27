"""Rows for Fireworks' reinforcement fine-tuning: OpenAI's messages, and what an evaluator needs."""

from collections.abc import Mapping
from typing import Any

from assay.types import Sample

from .conversion import Converted, Lost, mapping_at
from .openai_finetuning import from_openai_finetuning, to_openai_rft

_NAMES = {"reference_answer": "ground_truth", "sample_id": "id"}


def to_fireworks_rft(sample: Sample) -> Converted[dict[str, Any]]:
    """A row with `messages` and `tools`, and `ground_truth` and `id` for the evaluator."""
    converted = to_openai_rft(sample)
    row = {_NAMES.get(key, key): value for key, value in converted.value.items()}
    named = [n for n, message in enumerate(row["messages"]) if "name" in message]
    lost = (Lost(f"messages[{n}].name", "no place for `name`; left out") for n in named)
    row["messages"] = [
        {key: value for key, value in message.items() if key != "name"}
        for message in row["messages"]
    ]
    return Converted(row, (*converted.lost, *lost))


def from_fireworks_rft(row: Mapping[str, Any]) -> Sample:
    """The sample of a row: a prompt and its ground truth."""
    data = dict(mapping_at(row, "row"))
    for name, own in _NAMES.items():
        data[name] = data.pop(own, None)
    return from_openai_finetuning(data)[0]
