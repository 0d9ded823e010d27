"""Rows for verl and SkyRL, whose files are Parquet: columns of one type each.

A ground truth is text there: one that is none is written as JSON. Tool arguments and tools are
objects: verl passes them to the chat template as it reads them, which would quote a text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, Status, Trajectory

from .agent_turns import asked_of, in_words, turns_of
from .conversion import Converted, Lost, mapping_at, sequence_at, validated
from .huggingface import from_huggingface, to_huggingface
from .tool_schemas import read_tools, report_untold, tools_of

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
    """A row with `messages` and `tools` for verl, which trains on every assistant turn."""
    lost: list[Lost] = []
    turns = turns_of(sample)
    if turns.foreign:
        raise WireError(
            "assistant turns of the prompt would be trained on", where=f"sample {sample.id}"
        )
    turns.report_cut(lost)
    tools = tools_of(sample)
    report_untold(turns.made, tools, lost)
    converted = to_huggingface(in_words([*turns.context, *turns.made]))
    return Converted({"messages": converted.value, "tools": tools}, (*lost, *converted.lost))


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
    wire = _without_nulls(sequence_at(data["messages"], "messages"))
    messages = from_huggingface([{"content": "", **mapping_at(each, "message")} for each in wire])
    start = next((n for n, each in enumerate(messages) if each.role == "assistant"), len(messages))
    fields: dict[str, Any] = {
        "prompt": messages[:start],
        "trajectory": Trajectory(messages=messages),
        "status": Status.COMPLETED,
    }
    if data.get("tools"):
        fields["metadata"] = {"tools": read_tools(_without_nulls(data["tools"]), "tools")}
    return validated(Sample, fields, "row")


def _without_nulls(value: Any) -> Any:
    """The value without the keys that Parquet padded its objects with."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


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
