"""The row layouts that need no adapter, and how each becomes a sample.

`LAYOUTS` is the table; the first match wins. A layout reads some columns; all of them stay in
`Sample.input`, so that no data is lost.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from assay.errors import BadRow, WireError
from assay.formats import from_eval_record
from assay.types import Sample, stable_id, validate

DatasetRow = dict[str, Any]
Fields = dict[str, Any]
RowPredicate = Callable[[DatasetRow], bool]
RowReader = Callable[[DatasetRow], Fields]

PROMPT_KEYS = ("prompt", "question", "problem", "query", "input")
ANSWER_KEYS = (
    "ground_truth",
    "answer",
    "target",
    "expected",
    "expected_output",
    "ideal",
    "solution",
    "reference_answer",
)
# verl and SkyRL keep the ground truth inside an object.
_REWARD_KEYS = ("reward_model", "reward_spec")
ID_KEYS = ("id", "row_id", "task_id", "sample_id", "uid")
_EVAL_PROTOCOL_KEYS = frozenset(
    {"input_metadata", "evaluation_result", "rollout_status", "execution_metadata", "eval_metadata"}
)
_SAMPLE_NAMES = frozenset(Sample.model_fields) | {
    "messages",
    "response",
    "reward",
    *_EVAL_PROTOCOL_KEYS,
}
# One of them beside an object `input` marks a sample: no other layout has an object there.
_SAMPLE_ONLY_KEYS = frozenset({"prompt", "index", "group_index", "rollout_id", "status", "tokens"})
# One of them marks a sample if all columns are fields of a sample.
_TRAINING_ONLY_KEYS = frozenset(
    {"tokens", "loss_mask", "rollout_log_probs", "rollout_id", "failure"}
)
_RECORD_KEYS = frozenset({"session_id", "request", "intermediate_events"})
_GENERATED_ID = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True)
class Layout:
    """One way to write a row: how it is recognised, and which sample fields it gives."""

    name: str
    columns: frozenset[str]
    """A row with none of these columns does not match; `matches` is not called."""

    matches: RowPredicate
    read: RowReader
    whole: bool = False
    """Whether the layout gives every field of a sample, including `id` and `input`."""


def read_row(
    row: DatasetRow,
    *,
    index: int,
    original: DatasetRow | None = None,
    fallback: Layout | None = None,
) -> Sample:
    """Convert a row to a sample. Raises `BadRow`.

    `original` is the row before an adapter changed it: `input` and a generated id come from it.
    `fallback` reads a row in which no other layout finds a prompt.
    """
    layouts = _select_layouts(tuple(row))
    for layout in layouts if fallback is None else (*layouts, fallback):
        if layout.matches(row):
            hint = f"it was read as the {layout.name} layout; pass adapter= to read it another way"
            fields = layout.read(row)
            if layout.whole:
                fields = {**fields, "index": index} if row.get("index") is None else fields
            else:
                prompt = fields["prompt"]
                is_prompt = isinstance(prompt, str | list | tuple)
                if not (is_prompt and prompt) and fallback is not None and layout is not fallback:
                    continue
                if not is_prompt:
                    kind = type(prompt).__name__
                    raise BadRow(
                        f"the prompt is {kind}, not text or a list of messages",
                        hint=hint,
                    )
                if not prompt:
                    raise BadRow("the prompt is empty", hint="give the row a non-empty prompt")
                fields["input"] = row if original is None else original
                fields["id"] = _find_row_id(row) or _hash_row(fields["input"])
                fields["index"] = index
            try:
                return validate(Sample, fields)
            except ValidationError as error:
                problems = error.errors(
                    include_url=False, include_input=False, include_context=False
                )
                # Unions report one problem per alternative; the deepest is the most specific.
                deepest = max(problems, key=lambda problem: len(problem["loc"]))
                place = ".".join(map(str, deepest["loc"]))
                why = f"{place}: {deepest['msg']}" if place else deepest["msg"]
                raise BadRow(f"the row does not fit a sample: {why}", hint=hint) from error
    keys = ", ".join(repr(key) for key in list(row)[:12]) or "none at all"
    more = f" and {len(row) - 12} more" if len(row) > 12 else ""
    if fallback is not None:
        missing = min(fallback.columns - row.keys())
        raise BadRow(
            f"the row has no column {missing!r}, a placeholder of {fallback.name}",
            hint=f"the columns are: {keys}{more}; add the column to the row, or remove "
            f"{{{missing}}} from the prompt",
        )
    raise BadRow(
        f"no known layout has these columns: {keys}{more}",
        hint="name the columns `question` and `answer`; or evaluate with --prompt FILE, whose text "
        f"has columns in braces, such as {{{next(iter(row), 'topic')}}}; or pass adapter=, a "
        "function from this dict to a Sample or to a dict with `prompt` and `ground_truth`; see "
        "`assay docs datasets`",
    )


@lru_cache(maxsize=128)
def _select_layouts(columns: tuple[str, ...]) -> tuple[Layout, ...]:
    # Cached: the rows of a dataset share a few sets of columns.
    return tuple(layout for layout in LAYOUTS if not layout.columns.isdisjoint(columns))


def is_generated_id(sample: Sample) -> bool:
    """Return whether the id of a sample is the hash of its content."""
    if not _GENERATED_ID.fullmatch(sample.id):
        return False
    rebuilt = Sample(prompt=sample.prompt, ground_truth=sample.ground_truth)
    return sample.id == rebuilt.id or sample.id == stable_id(sample.input)


def _is_assay_row(row: DatasetRow) -> bool:
    # Whether `Sample.to_json` wrote the row. Questions of other datasets may have an `id`, a
    # `prompt` and an `input` too, so that each of these needs further evidence.
    own = row.get("id")
    if not isinstance(own, str) or not own:
        return False
    if isinstance(row.get("trajectory"), dict) or isinstance(row.get("score"), dict):
        return "messages" not in row
    given = row.get("input")
    if isinstance(given, dict):
        if "messages" in row or any(key in row for key in ANSWER_KEYS[1:]):
            return False
        return not _SAMPLE_ONLY_KEYS.isdisjoint(row) or own == _hash_row(given)
    if "prompt" not in row:
        return False
    if row.keys() <= Sample.model_fields.keys() and not _TRAINING_ONLY_KEYS.isdisjoint(row):
        return True
    if not _GENERATED_ID.fullmatch(own):
        return False
    try:
        return Sample.model_validate({**row, "id": ""}).id == own
    except ValidationError:
        return False


def _read_eval_record(row: DatasetRow) -> Fields:
    """Read an evaluation record, with its own `response` as the answer."""
    try:
        return dict(from_eval_record(row))
    except WireError as error:
        raise BadRow(f"the evaluation record cannot be read: {error}") from error


def _read_eval_protocol(row: DatasetRow) -> Fields:
    fields: Fields = {key: value for key, value in row.items() if key not in _SAMPLE_NAMES}
    for key in ("rollout_status", "execution_metadata", "eval_metadata"):
        if key in row:
            fields[key] = row[key]
    return {
        **fields,
        "prompt": _check_message_list(row),
        "ground_truth": row.get("ground_truth"),
        "score": row.get("evaluation_result"),
        "metadata": row.get("input_metadata"),
    }


def _check_message_list(row: DatasetRow) -> Any:
    # Text is a valid prompt: a conversation that was encoded twice would be sent as JSON.
    if isinstance(row["messages"], str):
        raise BadRow("`messages` is text, not a list of messages", hint="decode it with adapter=")
    return row["messages"]


def _find_prompt(row: DatasetRow) -> Any:
    for key in PROMPT_KEYS:
        if (prompt := row.get(key)) is not None:
            return prompt
    return None


def _read_completion(row: DatasetRow) -> Fields:
    # TRL's unpaired preferences: `label` is False for a bad completion, which is not an answer.
    good = row.get("label") is not False
    answer = find_ground_truth(row)
    if answer is None and good:
        answer = row["completion"]
    return {"prompt": row["prompt"], "ground_truth": answer}


def _read_preference(row: DatasetRow) -> Fields:
    prompt, chosen = row.get("prompt"), row["chosen"]
    if prompt is None:
        shared = _count_shared_messages(row)
        prompt, chosen = chosen[:shared], chosen[shared:]
    return {"prompt": prompt, "ground_truth": chosen}


def _read_instruction(row: DatasetRow) -> Fields:
    parts = [row["instruction"], row.get("input")]
    if not all(part is None or isinstance(part, str) for part in parts):
        raise BadRow("`instruction` and `input` must both be text", hint="pass adapter=")
    prompt = "\n\n".join(part for part in parts if part)
    answer = find_ground_truth(row)
    return {"prompt": prompt, "ground_truth": row.get("output") if answer is None else answer}


def find_ground_truth(row: DatasetRow) -> Any:
    """Return the expected answer of a row, or None."""
    for key in ANSWER_KEYS:
        if (answer := row.get(key)) is not None:
            return answer
    for key in _REWARD_KEYS:
        if isinstance(reward := row.get(key), dict):
            return reward.get("ground_truth")
    return None


def _count_shared_messages(row: DatasetRow) -> int:
    """Return the length of the common prefix of the chosen and the rejected conversation."""
    chosen, rejected = row["chosen"], row["rejected"]
    if not (isinstance(chosen, list) and isinstance(rejected, list)):
        return 0
    pairs = enumerate(zip(chosen, rejected, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(chosen), len(rejected)))


def _is_preference(row: DatasetRow) -> bool:
    if row.get("chosen") is None or row.get("rejected") is None:
        return False
    return row.get("prompt") is not None or _count_shared_messages(row) > 0


LAYOUTS = (
    Layout(
        "evaluation record",
        _RECORD_KEYS,
        lambda row: row.keys() >= _RECORD_KEYS,
        _read_eval_record,
        whole=True,
    ),
    Layout(
        "assay", frozenset({"trajectory", "score", "input", "prompt"}), _is_assay_row, dict, True
    ),
    Layout(
        "eval-protocol",
        frozenset({"messages"}),
        lambda row: row["messages"] is not None and not _EVAL_PROTOCOL_KEYS.isdisjoint(row),
        _read_eval_protocol,
    ),
    Layout(
        "messages",
        frozenset({"messages"}),
        lambda row: bool(row["messages"]),
        lambda row: {"prompt": _check_message_list(row), "ground_truth": find_ground_truth(row)},
    ),
    Layout("TRL preference", frozenset({"chosen"}), _is_preference, _read_preference),
    Layout(
        "TRL completion",
        frozenset({"completion"}),
        lambda row: row.get("prompt") is not None and row["completion"] is not None,
        _read_completion,
    ),
    Layout(
        "instruction",
        frozenset({"instruction"}),
        lambda row: row["instruction"] is not None,
        _read_instruction,
    ),
    Layout(
        "question",
        frozenset(PROMPT_KEYS),
        lambda row: _find_prompt(row) is not None,
        lambda row: {"prompt": _find_prompt(row), "ground_truth": find_ground_truth(row)},
    ),
)


def _find_row_id(row: DatasetRow) -> str | None:
    for key in ID_KEYS:
        if (own := row.get(key)) is not None:
            return own if type(own) is str and own else _format_id(key, own)
    metadata = row.get("input_metadata")
    if isinstance(metadata, dict) and metadata.get("row_id") is not None:
        return _format_id("input_metadata.row_id", metadata["row_id"])
    return None


def _format_id(key: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    # A bool is an int in Python, but it does not identify a row.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRow(
        f"`{key}` is {value!r:.80}, which is not a valid id",
        hint="an id is text or a whole number; omit it (or write null) to generate one",
    )


def _hash_row(row: DatasetRow) -> str:
    try:
        return stable_id(row)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRow(
            f"the row contains a value without a JSON form, so no id can be generated: {error}",
            hint="give the row an `id`, or turn the value into text with adapter=",
        ) from error
