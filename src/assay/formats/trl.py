"""Rows for TRL's trainers: SFT, GRPO prompts, preference and KTO. Tool arguments are objects.

Conversations are written as prompt and completion: with one list of messages, TRL would train on
the assistant turns of the prompt as well. `tools` is JSON text, which TRL reads; as objects, their
schemas would be filled up with each other's keys when the file is loaded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample

from .agent_turns import (
    AgentTurns,
    build_training_sample,
    flatten_to_text,
    get_prompt_messages,
    split_training_turns,
)
from .conversion import Converted, Dropped, expect_mapping, expect_sequence, validate_wire
from .huggingface import from_huggingface, to_huggingface
from .tool_schemas import write_tools_json

# PyTorch's index for tokens that the loss ignores.
IGNORE_LABEL = -100


def to_trl_sft(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `prompt`, `completion` and `tools`. Only the completion is trained on.

    With `assistant_only_loss=True` TRL also excludes the answers of tools.
    """
    dropped: list[Dropped] = []
    turns, tools = _split_trl_turns(sample, dropped)
    if not all(n in turns.own for n, each in enumerate(turns.made) if each.role == "assistant"):
        raise WireError(
            "between the agent's turns are assistant turns of others, which would be trained on",
            where=f"sample {sample.id}",
        )
    row = {
        "prompt": _write_trl_messages(turns.context, dropped),
        "completion": _write_trl_messages(turns.made, dropped, offset=len(turns.context)),
        "tools": tools,
    }
    return Converted(row, tuple(dropped))


def to_trl_messages(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `messages` and `tools`. Refuses foreign assistant turns."""
    dropped: list[Dropped] = []
    turns, tools = _split_trl_turns(sample, dropped, allow_foreign=False)
    messages = _write_trl_messages([*turns.context, *turns.made], dropped)
    return Converted({"messages": messages, "tools": tools}, tuple(dropped))


def to_trl_prompt(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a row for `GRPOTrainer`: `prompt`, and `ground_truth` and `id` for rewards."""
    dropped: list[Dropped] = []
    asked = get_prompt_messages(sample)
    if not asked:
        raise WireError("the sample has no prompt", where=f"sample {sample.id}")
    prompt = _write_trl_messages(asked, dropped)
    return Converted(
        {"prompt": prompt, "ground_truth": sample.ground_truth, "id": sample.id}, tuple(dropped)
    )


def to_trl_preference(chosen: Sample, rejected: Sample) -> Converted[dict[str, Any]]:
    """Return a row with `prompt`, `chosen` and `rejected`: two answers to one context."""
    dropped: list[Dropped] = []
    better, tools = _split_trl_turns(chosen, dropped)
    worse, _ = _split_trl_turns(rejected, dropped)
    prompt = _write_trl_messages(better.context, dropped)
    if prompt != _write_trl_messages(worse.context, []):
        raise WireError("the two answers are not to the same context", where=f"sample {chosen.id}")
    row = {
        "prompt": prompt,
        "chosen": _write_trl_messages(better.made, dropped, offset=len(prompt)),
        "rejected": _write_trl_messages(worse.made, dropped, offset=len(prompt)),
        "tools": tools,
        "score_chosen": chosen.reward,
        "score_rejected": rejected.reward,
    }
    return Converted(row, tuple(dropped))


def to_trl_kto(sample: Sample, *, good: bool) -> Converted[dict[str, Any]]:
    """Return a row with `prompt`, `completion` and `label`: whether the answer is good."""
    converted = to_trl_sft(sample)
    return Converted({**converted.value, "label": good}, converted.dropped)


def to_trl_tokens(sample: Sample) -> Converted[dict[str, Any]]:
    """Return a tokenized row for `SFTTrainer`: `input_ids`, and `labels` with -100 off the mask."""
    # Labels, because TRL applies a `completion_mask` only if it is configured to.
    where = f"sample {sample.id}"
    tokens, mask = sample.tokens, sample.loss_mask
    if not tokens or len(tokens) != len(mask):
        raise WireError(
            f"the sample has {len(tokens)} tokens and {len(mask)} mask values", where=where
        )
    if odd := [value for value in mask if value not in (0.0, 1.0)]:
        raise WireError(f"the mask value {odd[0]:g} is neither 0 nor 1", where=where)
    if not any(mask):
        raise WireError("the sample has no token to train on", where=where)
    labels = [token if on else IGNORE_LABEL for token, on in zip(tokens, mask, strict=True)]
    return Converted({"input_ids": list(tokens), "labels": labels})


def from_trl(row: Mapping[str, Any]) -> list[Sample]:
    """Read the samples of a row: one, or the chosen and the rejected one of a preference.

    Reads every layout written here. Raises `WireError` for anything else.
    """
    data = expect_mapping(row, "row")
    if "input_ids" in data:
        tokens = list(expect_sequence(data["input_ids"], "input_ids"))
        labels = expect_sequence(data.get("labels", tokens), "labels")
        mask = [0.0 if label == IGNORE_LABEL else 1.0 for label in labels]
        return [validate_wire(Sample, {"tokens": tokens, "loss_mask": mask}, "row")]
    if "messages" in data:
        messages = _read_trl_messages(data, "messages")
        start = max(
            (n + 1 for n, each in enumerate(messages) if each.role in ("user", "system")),
            default=0,
        )
        return [_build_trl_sample(data, messages[:start], messages[start:])]
    prompt = _read_trl_messages(data, "prompt")
    answers = [key for key in ("completion", "chosen", "rejected") if key in data]
    found = [_build_trl_sample(data, prompt, _read_trl_messages(data, key)) for key in answers]
    return found or [_build_trl_sample(data, prompt, [])]


def _split_trl_turns(
    sample: Sample, dropped: list[Dropped], *, allow_foreign: bool = True
) -> tuple[AgentTurns, str]:
    turns, tools = split_training_turns(sample, dropped, allow_foreign=allow_foreign)
    if not turns.context:
        # TRL treats an empty prompt as plain text instead of a conversation.
        raise WireError("nothing comes before the agent's first turn", where=f"sample {sample.id}")
    return turns, write_tools_json(tools)


def _write_trl_messages(
    messages: Sequence[Message], dropped: list[Dropped], *, offset: int = 0
) -> list[dict[str, Any]]:
    converted = to_huggingface(flatten_to_text(messages))
    for loss in converted.dropped:
        # Positions are relative to the part that is written; reports count the whole conversation.
        place, _, rest = loss.where.removeprefix("messages[").partition("]")
        dropped.append(Dropped(f"messages[{int(place) + offset}]{rest}", loss.what))
    return converted.value


def _read_trl_messages(data: Mapping[str, Any], key: str) -> list[Message]:
    if key not in data:
        raise WireError(
            f"the row has no `{key}`", where="row", hint="pass a row in one of TRL's layouts"
        )
    return from_huggingface(expect_sequence(data[key], key))


def _build_trl_sample(
    data: Mapping[str, Any], prompt: list[Message], answer: list[Message]
) -> Sample:
    about = {"id": str(data.get("id") or ""), "ground_truth": data.get("ground_truth")}
    return build_training_sample(about, prompt, answer, data.get("tools"))
