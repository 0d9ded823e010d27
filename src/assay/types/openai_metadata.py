"""A result as the metadata of an OpenAI message: at most 16 pairs of short strings.

`eval_protocol_score` contains the number, `eval_protocol_info` the rest as JSON, as far as it
fits. With `lossless`, numbered `eval_protocol_more_…` pairs contain the exact result.
"""

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from assay.errors import WireError

from .field_types import replace_lone_surrogates
from .overflow_pairs import MAX_UNPACKED_BYTES, pack_overflow, unpack_overflow
from .result_info import InfoReading, read_info, to_finite_float, write_info
from .serialization import JsonModel

# For annotations only: the result type imports this module.
if TYPE_CHECKING:
    from .evaluate_result import EvaluateResult

# Limits of OpenAI's API.
MAX_PAIRS = 16
MAX_METADATA_VALUE = 512
SCORE_KEY = "eval_protocol_score"
INFO_KEY = "eval_protocol_info"
OVERFLOW_KEY = "eval_protocol_more_"

_OVERFLOW_KEY_PATTERN = re.compile(rf"{OVERFLOW_KEY}([0-9]+)")
_SCORE_PATTERN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_ResultT = TypeVar("_ResultT", bound=JsonModel)


def is_result_key(key: str) -> bool:
    """Whether a pair with this key is part of a result."""
    return key in (SCORE_KEY, INFO_KEY) or _OVERFLOW_KEY_PATTERN.fullmatch(key) is not None


def write_metadata(
    result: "EvaluateResult", *, lossless: bool = False, max_pairs: int = MAX_PAIRS
) -> dict[str, str]:
    """Return the pairs of `result`. Raises `WireError` when they exceed `max_pairs`."""
    score = to_finite_float(result.score)
    metadata = {} if score is None else {SCORE_KEY: repr(score)}
    metadata[INFO_KEY] = write_info(result)
    pairs = (
        pack_overflow(_write_exact_json(result), covering=_join_readable_pairs(metadata))
        if lossless
        else []
    )
    needed = len(metadata) + len(pairs)
    if needed > max_pairs:
        raise WireError(
            f"the result needs {needed} pairs of metadata; "
            f"{max(max_pairs, 0)} of {MAX_PAIRS} are free",
            where=type(result).__name__,
            hint="write it without `lossless`, which keeps what fits"
            if lossless
            else "remove other metadata from the message",
        )
    metadata.update((f"{OVERFLOW_KEY}{number}", pair) for number, pair in enumerate(pairs, start=1))
    return metadata


def read_metadata(kind: type[_ResultT], metadata: Mapping[str, str]) -> _ResultT:
    """Read a result of type `kind`. Never raises unless `kind` has further required fields.

    Without a readable score, or with a damaged info, the result is invalid and its `error`
    describes the problem.
    """
    notes: list[str] = []
    matches = ((_OVERFLOW_KEY_PATTERN.fullmatch(key), value) for key, value in metadata.items())
    more = {match[1]: value for match, value in matches if match}
    if more:
        try:
            return kind.from_json(unpack_overflow(more, covering=_join_readable_pairs(metadata)))
        except ValueError as error:
            why = "not a result" if isinstance(error, ValidationError) else error
            notes.append(f"{OVERFLOW_KEY}1 and following are unreadable ({why})")
    reading = read_info(metadata.get(INFO_KEY))
    reading.faults = [f"{INFO_KEY} {fault}" for fault in reading.faults]
    score = _read_score(metadata.get(SCORE_KEY), reading)
    return _build_result(kind, score, reading, notes)


def _join_readable_pairs(metadata: Mapping[str, str]) -> str:
    # Covered by the overflow's checksum: when another tool replaces a readable pair, the overflow
    # is out of date.
    return json.dumps([metadata.get(SCORE_KEY), metadata.get(INFO_KEY)], default=repr)


def _read_score(text: object, reading: InfoReading) -> float | None:
    score = None
    if (
        isinstance(text, str)
        and len(text) <= MAX_METADATA_VALUE
        and _SCORE_PATTERN.fullmatch(text.strip())
    ):
        score = float(text)
    if score is not None and not isfinite(score):
        score = None
    # An unscored result has no score to write; its info marks it as invalid.
    unjudged = text is None and not reading.is_score_valid
    if score is None and not unjudged:
        fault = "is missing" if text is None else f"is not a finite number: {text!r:.40}"
        reading.faults.append(f"{SCORE_KEY} {fault}")
    if reading.score is not None and reading.score != score:
        reading.faults.append(f"{INFO_KEY} contains another score: {reading.score!r:.40}")
    return score


def _build_result(
    kind: type[_ResultT], score: float | None, reading: InfoReading, notes: list[str]
) -> _ResultT:
    # Retries without the refused fields: one damaged field must not cost the others.
    fields = reading.fields
    while True:
        earlier = [reading.error] if reading.error is not None else []
        problems = [*earlier, *reading.faults, *notes]
        valid = reading.is_score_valid and score is not None and not reading.faults
        settled = {"score": score, "is_score_valid": valid}
        error = {"error": "; ".join(problems)} if problems else {}
        try:
            # Strict, so that "yes" is not read as a flag or true as a number.
            text = replace_lone_surrogates(
                json.dumps({**fields, **settled, **error}, ensure_ascii=False)
            )
            return kind.model_validate_json(text, strict=True)
        except (ValidationError, RecursionError) as refusal:
            if not fields:
                raise
            errors = refusal.errors() if isinstance(refusal, ValidationError) else []
            refused = {
                str(each["loc"][0]): f"a wrong `{each['loc'][0]}` ({each['msg']:.80})"
                for each in reversed(errors)
                if each["loc"] and each["loc"][0] in fields
            }
            # All fields when the error names none of them: the loop must make progress.
            refused = refused or {name: f"an unreadable `{name:.40}`" for name in fields}
            reading.faults.extend(f"{INFO_KEY} contains {each}" for each in refused.values())
            fields = {name: value for name, value in fields.items() if name not in refused}


def _write_exact_json(result: "EvaluateResult") -> str:
    # Read back before it is written: `lossless` must not lose a type that JSON does not have.
    where = type(result).__name__
    text = result.to_json()
    if (size := len(text.encode())) > MAX_UNPACKED_BYTES:
        raise WireError(
            f"the result is {size} bytes of JSON; metadata takes {MAX_UNPACKED_BYTES} at most",
            where=where,
            hint="write it without `lossless`, which keeps what fits",
        )
    try:
        same = type(result).from_json(text) == result
    except ValidationError:
        same = False
    if not same:
        raise WireError(
            "the result contains values that change when they are read back",
            where=where,
            hint="use plain JSON values: lists rather than tuples, text rather than dates",
        )
    return text
