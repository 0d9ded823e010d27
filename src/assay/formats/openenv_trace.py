"""Converts OpenEnv training traces: each model call with its tokens, logprobs and mask.

The mask covers prompt and completion. Nearly everything else is stored in the metadata of the
turns, because a trace has no field for it. The released openenv-core package (0.3.0) neither writes
nor reads such traces: the layout is that of the project's development branch.
"""

from collections.abc import Mapping
from typing import Any

from assay.errors import WireError
from assay.types import ModelCall, Sample, Trajectory

from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_sequence,
    expect_text,
    read_items,
    validate_wire,
)

OPENENV_SCHEMA_VERSION = 1


def to_openenv_trace(sample: Sample) -> Converted[dict[str, Any]]:
    """Return the trace of a sample. Raises `WireError` for a call without ids and logprobs."""
    trajectory = sample.trajectory
    made = [] if trajectory is None else trajectory.calls
    # Requests for a title or a summary are not what the sample was scored for.
    calls = [call for call in made if call.error is None and call.purpose == "turn"]
    if not calls:
        raise WireError("no model call is recorded", where=f"sample {sample.id}")
    turns = [_write_trace_turn(sample, call, number) for number, call in enumerate(calls)]
    dropped = (
        Dropped("messages", "the text of the conversation; its tokens are written"),
        *([Dropped("ground_truth", "no place for it; left out")] if sample.ground_truth else []),
    )
    return Converted({"schema_version": OPENENV_SCHEMA_VERSION, "turns": turns}, dropped)


def from_openenv_trace(trace: Mapping[str, Any]) -> Sample:
    """Read the model calls of a trace as a sample. Raises `WireError` for anything else."""
    data = expect_mapping(trace, "trace")
    if data.get("schema_version") != OPENENV_SCHEMA_VERSION:
        raise WireError(
            f"the trace has schema version {data.get('schema_version')!r}, not 1", where="trace"
        )
    turns = read_items(data.get("turns"), "turns", expect_mapping)
    calls = read_items(turns, "turns", _read_trace_turn)
    about = expect_mapping(turns[0].get("metadata") or {}, "metadata") if turns else {}
    fields: dict[str, Any] = {
        "id": str(about.get("sample_id") or ""),
        "rollout_id": about.get("rollout_id"),
        "trajectory": Trajectory(calls=calls),
    }
    if about.get("reward") is not None:
        fields["score"] = {"score": about["reward"]}
    return validate_wire(Sample, fields, "trace")


def _write_trace_turn(sample: Sample, call: ModelCall, number: int) -> dict[str, Any]:
    where = f"sample {sample.id}, call {number + 1}"
    prompt, completion, logprobs = call.prompt_ids, call.completion_ids, call.logprobs
    if not prompt or completion is None or logprobs is None:
        missing = "prompt ids" if not prompt else "completion ids or logprobs"
        raise WireError(f"a model call has no {missing}", where=where)
    if len(logprobs) != len(completion):
        raise WireError("a model call has more or fewer logprobs than tokens", where=where)
    # A positive value is a probability or a negated logprob, which would train on garbage.
    if any(value > 0 for value in logprobs):
        raise WireError("a model call has a logprob above 0", where=where)
    metadata = {
        "sample_id": sample.id,
        "rollout_id": sample.rollout_id,
        "reward": sample.reward,
        "finish_reason": call.finish_reason,
        "weight_version": call.weight_version,
    }
    return {
        "node_id": f"{sample.rollout_id or sample.id}/{number}",
        "prompt_token_ids": list(prompt),
        "completion_token_ids": list(completion),
        "per_token_logps": [float(value) for value in logprobs],
        "loss_mask": [0] * len(prompt) + [1] * len(completion),
        "request": {"model": call.model, **call.sampling} if call.model else dict(call.sampling),
        "response": {},
        "metadata": {key: value for key, value in metadata.items() if value is not None},
    }


def _read_trace_turn(turn: Mapping[str, Any], where: str) -> ModelCall:
    expect_text(turn.get("node_id"), f"{where}.node_id")
    about = expect_mapping(turn.get("metadata") or {}, f"{where}.metadata")
    request = dict(expect_mapping(turn.get("request") or {}, f"{where}.request"))
    prompt, completion = turn.get("prompt_token_ids"), turn.get("completion_token_ids")
    mask = expect_sequence(turn.get("loss_mask"), f"{where}.loss_mask")
    expected = len(expect_sequence(prompt, where)) + len(expect_sequence(completion, where))
    if len(mask) != expected:
        raise WireError(f"the turn has {len(mask)} mask values for {expected} tokens", where=where)
    fields = {
        "prompt_ids": prompt,
        "completion_ids": completion,
        "logprobs": turn.get("per_token_logps"),
        "model": request.pop("model", None),
        "sampling": request,
        "finish_reason": about.get("finish_reason"),
        "weight_version": about.get("weight_version"),
    }
    return validate_wire(ModelCall, fields, where)
