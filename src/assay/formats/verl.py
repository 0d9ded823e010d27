"""Rows for verl and SkyRL, whose files are Parquet: columns of one type each.

The ground truth is text; other values are written as JSON. Tool arguments and tools are objects:
verl passes them unchanged to the chat template, which would quote a text.
"""

import json
from collections.abc import Mapping
from typing import Any

from assay.errors import WireError
from assay.types import Sample

from .agent_turns import (
    build_training_sample,
    flatten_to_text,
    get_prompt_messages,
    split_training_turns,
)
from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_sequence,
    get_opening_messages,
    validate_wire,
)
from .huggingface import from_huggingface, to_huggingface

# Declared, because a column whose first rows are null would otherwise get the wrong type.
VERL_COLUMNS: Mapping[str, Any] = {
    "data_source": str,
    "prompt": [{"role": str, "content": str}],
    "ability": str,
    "reward_model": {"style": str, "ground_truth": str},
    "extra_info": {"index": int, "id": str},
}
SKYRL_COLUMNS: Mapping[str, Any] = {
    "data_source": str,
    "prompt": [{"role": str, "content": str}],
    "env_class": str,
    "reward_spec": {"method": str, "ground_truth": str},
    "extra_info": {"index": int, "id": str},
}
_TEXT_TURN_KEYS = frozenset({"role", "content"})
# verl selects the reward function by `data_source`, so the column must not be empty.
_UNKNOWN_SOURCE = "assay"


def to_verl(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with a prompt for verl's RL trainers."""
    dropped: list[Dropped] = []
    row = {
        **_write_shared_columns(sample, dropped),
        "ability": _find_text_value(sample, "ability"),
        "reward_model": {"style": "rule", "ground_truth": _write_ground_truth(sample)},
    }
    return Converted({name: row[name] for name in VERL_COLUMNS}, tuple(dropped))


def to_skyrl(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row for SkyRL. Without `env_class` the training configuration selects it."""
    dropped: list[Dropped] = []
    row = {
        **_write_shared_columns(sample, dropped),
        "env_class": _find_text_value(sample, "env_class"),
        "reward_spec": {"method": "rule", "ground_truth": _write_ground_truth(sample)},
    }
    return Converted({name: row[name] for name in SKYRL_COLUMNS}, tuple(dropped))


def to_verl_sft(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `messages` and `tools` for verl, which trains on all assistant turns."""
    dropped: list[Dropped] = []
    turns, tools = split_training_turns(sample, dropped, allow_foreign=False)
    converted = to_huggingface(flatten_to_text([*turns.context, *turns.made]))
    return Converted({"messages": converted.value, "tools": tools}, (*dropped, *converted.dropped))


def from_verl(row: Mapping[str, Any]) -> Sample:
    """Read the sample of a row for verl or SkyRL."""
    data = expect_mapping(row, "row")
    if "messages" in data:
        wire = _strip_parquet_nulls(expect_sequence(data["messages"], "messages"))
        messages = from_huggingface(
            [{"content": "", **expect_mapping(each, "message")} for each in wire]
        )
        prompt = get_opening_messages(messages)
        tools = _strip_parquet_nulls(data.get("tools"))
        return build_training_sample({}, prompt, messages[len(prompt) :], tools)
    reward = data.get("reward_model") or data.get("reward_spec") or {}
    info = expect_mapping(data.get("extra_info") or {}, "extra_info")
    fields = {
        "id": str(info.get("id") or ""),
        "index": info.get("index"),
        "prompt": from_huggingface(expect_sequence(data.get("prompt"), "prompt")),
        "ground_truth": expect_mapping(reward, "reward_model").get("ground_truth"),
        "input": {
            key: data[key] for key in ("data_source", "ability", "env_class") if data.get(key)
        },
    }
    return validate_wire(Sample, fields, "row")


def _strip_parquet_nulls(value: Any) -> Any:
    # Parquet fills every object of a column up with the keys of the others.
    if isinstance(value, Mapping):
        return {key: _strip_parquet_nulls(each) for key, each in value.items() if each is not None}
    return (
        [_strip_parquet_nulls(each) for each in value] if isinstance(value, list | tuple) else value
    )


def _write_shared_columns(sample: Sample, dropped: list[Dropped]) -> dict[str, Any]:
    asked = get_prompt_messages(sample)
    if not asked:
        raise WireError("the sample has no prompt", where=f"sample {sample.id}")
    if any(message.tool_calls for message in asked):
        raise WireError(
            "tool calls in the prompt have no place in its column", where=f"sample {sample.id}"
        )
    converted = to_huggingface(flatten_to_text(asked))
    for n, wire in enumerate(converted.value):
        for key in wire.keys() - _TEXT_TURN_KEYS:
            dropped.append(Dropped(f"messages[{n}].{key}", f"no place for `{key}`; left out"))
    dropped += converted.dropped
    return {
        "data_source": _find_text_value(sample, "data_source") or _UNKNOWN_SOURCE,
        "prompt": [{key: wire[key] for key in ("role", "content")} for wire in converted.value],
        "extra_info": {"index": sample.index, "id": sample.id},
    }


def _write_ground_truth(sample: Sample) -> str | None:
    truth = sample.ground_truth
    if truth is None or isinstance(truth, str):
        return truth
    try:
        return json.dumps(truth, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise WireError(f"the ground truth cannot be written as JSON: {error}") from None


def _find_text_value(sample: Sample, key: str) -> str | None:
    for holder in (sample.input, sample.metadata):
        if isinstance(holder.get(key), str) and holder[key]:
            return str(holder[key])
    return None
