"""Rows for TRL's trainers: SFT, GRPO prompts, preference and KTO. Tool arguments are objects.

Conversations are written as prompt and completion: with one list of messages, TRL would train on
the assistant turns of the prompt as well. `tools` is JSON text, which TRL reads; as objects, their
schemas would be filled up with each other's keys when the file is loaded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, Status, Trajectory

from .agent_turns import AgentTurns, flatten_to_text, get_prompt_messages, split_agent_turns
from .conversion import Converted, Dropped, expect_mapping, expect_sequence, validate_wire
from .huggingface import from_huggingface, to_huggingface
from .tool_schemas import find_tools, read_tools, report_unknown_tools, write_tools_json

IGNORE_LABEL = -100
"""The label of a token that does not count for the loss."""


def to_trl_sft(sample: Sample) -> Converted[dict[str, Any]]:
    """A row with `prompt`, `completion` and `tools`. Only the completion is trained on.

    With `assistant_only_loss=True` TRL leaves out what the tools answered, too.
    """
    lost: list[Dropped] = []
    turns, tools = _split_trl_turns(sample, lost)
    if not all(n in turns.own for n, each in enumerate(turns.made) if each.role == "assistant"):
        raise WireError(
            "between the agent's turns are assistant turns of others, which would be trained on",
            where=f"sample {sample.id}",
        )
    row = {
        "prompt": _write_trl_messages(turns.context, lost),
        "completion": _write_trl_messages(turns.made, lost, offset=len(turns.context)),
        "tools": tools,
    }
    return Converted(row, tuple(lost))


def to_trl_messages(sample: Sample) -> Converted[dict[str, Any]]:
    """A row with `messages` and `tools`. Refuses a sample with assistant turns of others."""
    lost: list[Dropped] = []
    turns, tools = _split_trl_turns(sample, lost)
    if turns.foreign:
        raise WireError(
            "assistant turns of the prompt would be trained on",
            where=f"sample {sample.id}",
            hint="`trl-sft` keeps them apart",
        )
    messages = _write_trl_messages([*turns.context, *turns.made], lost)
    return Converted({"messages": messages, "tools": tools}, tuple(lost))


def to_trl_prompt(sample: Sample) -> Converted[dict[str, Any]]:
    """A row for `GRPOTrainer`: `prompt`, and `ground_truth` and `id` for reward functions."""
    lost: list[Dropped] = []
    prompt = _write_trl_messages(_require_prompt(sample), lost)
    return Converted(
        {"prompt": prompt, "ground_truth": sample.ground_truth, "id": sample.id}, tuple(lost)
    )


def to_trl_preference(chosen: Sample, rejected: Sample) -> Converted[dict[str, Any]]:
    """A row with `prompt`, `chosen` and `rejected`: two answers to the same context."""
    lost: list[Dropped] = []
    better, tools = _split_trl_turns(chosen, lost)
    worse, _ = _split_trl_turns(rejected, lost)
    prompt = _write_trl_messages(better.context, lost)
    if prompt != _write_trl_messages(worse.context, []):
        raise WireError("the two answers are not to the same context", where=f"sample {chosen.id}")
    row = {
        "prompt": prompt,
        "chosen": _write_trl_messages(better.made, lost, offset=len(prompt)),
        "rejected": _write_trl_messages(worse.made, lost, offset=len(prompt)),
        "tools": tools,
        "score_chosen": chosen.reward,
        "score_rejected": rejected.reward,
    }
    return Converted(row, tuple(lost))


def to_trl_kto(sample: Sample, *, good: bool) -> Converted[dict[str, Any]]:
    """A row with `prompt`, `completion` and `label`: whether the answer is a good one."""
    converted = to_trl_sft(sample)
    return Converted({**converted.value, "label": good}, converted.lost)


def to_trl_tokens(sample: Sample) -> Converted[dict[str, Any]]:
    """A row that `SFTTrainer` takes as it is: `input_ids`, and `labels` with -100 off the mask.

    Labels, because TRL applies a `completion_mask` only where it is told to.
    """
    where = f"sample {sample.id}"
    tokens, mask = sample.tokens, sample.loss_mask
    if not tokens or len(tokens) != len(mask):
        raise WireError(f"has {len(tokens)} tokens and {len(mask)} mask values", where=where)
    if odd := [value for value in mask if value not in (0.0, 1.0)]:
        raise WireError(f"has the mask value {odd[0]:g}, neither 0 nor 1", where=where)
    if not any(mask):
        raise WireError("has no token to train on", where=where)
    labels = [token if on else IGNORE_LABEL for token, on in zip(tokens, mask, strict=True)]
    return Converted({"input_ids": list(tokens), "labels": labels})


def from_trl(row: Mapping[str, Any]) -> list[Sample]:
    """The samples that a row holds: one, or the chosen and the rejected one of a preference.

    Reads every layout written here, and `messages`. Raises `WireError` for anything else.
    """
    data = expect_mapping(row, "row")
    if "input_ids" in data:
        return [_read_trl_tokens(data)]
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


def _split_trl_turns(sample: Sample, lost: list[Dropped]) -> tuple[AgentTurns, str]:
    turns, tools = split_agent_turns(sample), find_tools(sample)
    if not turns.context:
        # TRL takes an empty prompt for one that is no conversation.
        raise WireError("nothing comes before the agent's first turn", where=f"sample {sample.id}")
    turns.report_trailing_messages(lost)
    report_unknown_tools(turns.made, tools, lost)
    return turns, write_tools_json(tools)


def _require_prompt(sample: Sample) -> list[Message]:
    asked = get_prompt_messages(sample)
    if not asked:
        raise WireError("has no prompt", where=f"sample {sample.id}")
    return asked


def _write_trl_messages(
    messages: Sequence[Message], lost: list[Dropped], *, offset: int = 0
) -> list[dict[str, Any]]:
    converted = to_huggingface(flatten_to_text(messages))
    for loss in converted.lost:
        place, _, rest = loss.where.removeprefix("messages[").partition("]")
        lost.append(Dropped(f"messages[{int(place) + offset}]{rest}", loss.what))
    return converted.value


def _read_trl_messages(data: Mapping[str, Any], key: str) -> list[Message]:
    if key not in data:
        raise WireError(f"has no `{key}`", where="row", hint="is it a row of TRL's?")
    return from_huggingface(expect_sequence(data[key], key))


def _build_trl_sample(
    data: Mapping[str, Any], prompt: list[Message], answer: list[Message]
) -> Sample:
    fields: dict[str, Any] = {
        "id": str(data.get("id") or ""),
        "prompt": prompt,
        "ground_truth": data.get("ground_truth"),
    }
    if answer:
        fields["trajectory"] = Trajectory(messages=[*prompt, *answer])
        fields["status"] = Status.COMPLETED
    if data.get("tools"):
        fields["metadata"] = {"tools": read_tools(data["tools"], "tools")}
    return validate_wire(Sample, fields, "row")


def _read_trl_tokens(data: Mapping[str, Any]) -> Sample:
    tokens = list(expect_sequence(data["input_ids"], "input_ids"))
    labels = expect_sequence(data.get("labels", tokens), "labels")
    mask = [0.0 if label == IGNORE_LABEL else 1.0 for label in labels]
    return validate_wire(Sample, {"tokens": tokens, "loss_mask": mask}, "row")
