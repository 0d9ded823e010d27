"""Rows for verl and SkyRL, whose files are Parquet: columns of one type each.

A ground truth is text there: one that is none is written as JSON. Tool arguments are JSON text as
well, and tools are left out: as objects, Parquet would fill each up with the keys of the others.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError

from ..message import Message
from ..sample import Sample, Status
from ..trajectory import Trajectory
from .agent_turns import asked_of, in_words, turns_of
from .conversion import Converted, Lost, mapping_at, sequence_at, validated
from .huggingface import from_huggingface, to_huggingface
from .tool_schemas import tools_of

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
VERL_SFT_COLUMNS: Mapping[str, Any] = {
    "messages": [
        {
            "role": str,
            "content": str,
            "reasoning_content": str,
            "tool_calls": [
                {"id": str, "type": str, "function": {"name": str, "arguments": str}},
            ],
            "tool_call_id": str,
            "name": str,
        }
    ],
}
_TEXT_TURNS = frozenset({"role", "content"})
_UNKNOWN_SOURCE = "assay"


def to_verl(sample: Sample) -> Converted[dict[str, Any]]:
    """A row of prompts for verl's RL trainers."""
    lost: list[Lost] = []
    row = {
        "data_source": _word(sample, "data_source") or _UNKNOWN_SOURCE,
        "prompt": _prompt(sample, lost),
        "ability": _word(sample, "ability"),
        "reward_model": {"style": "rule", "ground_truth": _truth(sample)},
        "extra_info": {"index": sample.index, "id": sample.id},
    }
    return Converted(row, tuple(lost))


def to_skyrl(sample: Sample) -> Converted[dict[str, Any]]:
    """A row of prompts for SkyRL. Without an `env_class` the training configuration names it."""
    lost: list[Lost] = []
    row = {
        "data_source": _word(sample, "data_source") or _UNKNOWN_SOURCE,
        "prompt": _prompt(sample, lost),
        "env_class": _word(sample, "env_class"),
        "reward_spec": {"method": "rule", "ground_truth": _truth(sample)},
        "extra_info": {"index": sample.index, "id": sample.id},
    }
    return Converted(row, tuple(lost))


def to_verl_sft(sample: Sample) -> Converted[dict[str, Any]]:
    """A row of a conversation for verl, which trains on every assistant turn of it."""
    lost: list[Lost] = []
    turns = turns_of(sample)
    if turns.foreign:
        raise WireError(
            "assistant turns of the prompt would be trained on", where=f"sample {sample.id}"
        )
    turns.report_cut(lost)
    if tools_of(sample):
        lost.append(Lost("tools", "Parquet has no place for several schemas; left out"))
    converted = to_huggingface(in_words([*turns.context, *turns.made]))
    messages = [_of_text(wire) for wire in converted.value]
    return Converted({"messages": messages}, (*lost, *converted.lost))


def from_verl(row: Mapping[str, Any]) -> Sample:
    """The sample of a row written here, for verl or for SkyRL."""
    data = mapping_at(row, "row")
    if "messages" in data:
        return _from_messages(data)
    reward = data.get("reward_model") or data.get("reward_spec") or {}
    info = mapping_at(data.get("extra_info") or {}, "extra_info")
    fields = {
        "id": str(info.get("id") or ""),
        "index": info.get("index"),
        "prompt": from_huggingface(sequence_at(data.get("prompt"), "prompt")),
        "ground_truth": mapping_at(reward, "reward_model").get("ground_truth"),
        "input": {
            key: data[key] for key in ("data_source", "ability", "env_class") if data.get(key)
        },
    }
    return validated(Sample, fields, "row")


def _from_messages(data: Mapping[str, Any]) -> Sample:
    wire = [
        {key: value for key, value in mapping_at(each, f"messages[{n}]").items() if value}
        for n, each in enumerate(sequence_at(data["messages"], "messages"))
    ]
    messages = from_huggingface([{"content": "", **each} for each in wire])
    start = next((n for n, each in enumerate(messages) if each.role == "assistant"), len(messages))
    fields = {
        "prompt": messages[:start],
        "trajectory": Trajectory(messages=messages),
        "status": Status.COMPLETED,
    }
    return validated(Sample, fields, "row")


def _of_text(wire: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have the three keys of the column, and arguments in words."""
    calls = [
        {
            "id": call.get("id"),
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": _json(call["function"]["arguments"]),
            },
        }
        for call in wire.get("tool_calls", ())
    ]
    return {**wire, "tool_calls": calls} if calls else wire


def _prompt(sample: Sample, lost: list[Lost]) -> list[dict[str, Any]]:
    asked = asked_of(sample)
    if not asked:
        raise WireError("has no prompt", where=f"sample {sample.id}")
    _refuse_calls(asked, sample)
    converted = to_huggingface(in_words(asked))
    for n, wire in enumerate(converted.value):
        for key in wire.keys() - _TEXT_TURNS:
            lost.append(Lost(f"messages[{n}].{key}", f"no place for `{key}`; left out"))
    lost += converted.lost
    return [{key: wire[key] for key in ("role", "content")} for wire in converted.value]


def _refuse_calls(messages: Sequence[Message], sample: Sample) -> None:
    if any(message.tool_calls for message in messages):
        raise WireError(
            "tool calls in the prompt have no place in its column", where=f"sample {sample.id}"
        )


def _truth(sample: Sample) -> str | None:
    truth = sample.ground_truth
    return truth if truth is None or isinstance(truth, str) else _json(truth)


def _word(sample: Sample, key: str) -> str | None:
    for holder in (sample.input, sample.metadata):
        if isinstance(holder.get(key), str) and holder[key]:
            return str(holder[key])
    return None


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise WireError(f"cannot be written as JSON: {error}") from None
