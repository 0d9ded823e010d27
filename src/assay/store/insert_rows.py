"""Rows to insert for one sample: narrow columns to filter by, and the encoded body."""

import hashlib
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from assay.errors import ConfigError, StoreError, WireError

from .excerpts import NO_EXCERPT, Excerpt, build_excerpt, to_column_text

if TYPE_CHECKING:
    from assay.types import ModelCall, Sample, Trajectory, Usage

NO_POSITION = 2**62
"""The position of a sample without an index. Sorts last; NULLs sort differently per database."""

_MAX_SAMPLE_ID_LENGTH = 400
_INT64 = 2**63
# An upper bound for plausible counts, which also keeps the sums of a run within 64 bits.
_MAX_ROLLOUT_TOKENS = 10**10

PLAIN, ZLIB = "plain", "zlib"
# Smaller bodies stay uncompressed: compression would double the CPU cost of recording them.
_MIN_COMPRESSED_BYTES = 32 * 1024

RESULT_COLUMNS = (
    "run_no key position sample_id repeat group_index status input_tokens output_tokens cost_usd "
    "latency_s cached recorded_at score valid metrics"
).split()
ATTEMPT_COLUMNS = (
    "run_no key position sample_id repeat group_index status input_tokens output_tokens cost_usd "
    "latency_s cached recorded_at boundary kind message retryable codec blob"
).split()


@dataclass(slots=True)
class InsertRow:
    """One sample on its way into the store."""

    key: str
    values: tuple[Any, ...]
    """In column order, without the run's number and, for attempts, the body."""

    body: bytes
    failed: bool = False
    prompt_digest: str | None = None
    """Digest of the first messages sent to the agent; None without any."""

    excerpt: Excerpt = NO_EXCERPT


def build_result_row(key: str, sample: "Sample", repeat: int) -> InsertRow:
    """Build the row of a completed sample. Raises `ConfigError` for a failed one."""
    if sample.failure is not None:
        # Recorded as a result, it would count as done and never be retried.
        raise ConfigError(
            f"sample {sample.id!r} failed at the {sample.failure.boundary} and has no result",
            where="Writer.record()",
            hint="use record_failure(), which records a failed attempt",
        )
    result = sample.score
    if result is None:
        judged: tuple[Any, ...] = (None, False, None)
    else:
        metrics = None
        if result.metrics:
            found = {
                name: metric.score if metric.is_score_valid else None
                for name, metric in result.metrics.items()
            }
            metrics = to_json(found).decode()
        judged = (result.score, result.is_score_valid, metrics)
    body = sample.to_json_bytes()
    values = (*_build_shared_values(key, sample, repeat), *judged)
    return InsertRow(key, values, body, excerpt=build_excerpt(sample))


def build_failure_row(key: str, sample: "Sample", repeat: int) -> InsertRow:
    """Build the row of a failed attempt. Raises `ConfigError` for a sample that did not fail."""
    failure = sample.failure
    if failure is None:
        raise ConfigError(
            f"sample {sample.id!r} has no failure",
            where="Writer.record_failure()",
            hint="set sample.failure, for instance to Failure.of(error, boundary)",
        )
    judged = (
        str(failure.boundary),
        to_column_text(failure.kind),
        to_column_text(failure.message),
        failure.retryable,
    )
    body = sample.to_json_bytes()
    values = (*_build_shared_values(key, sample, repeat), *judged)
    return InsertRow(key, values, body, failed=True, excerpt=build_excerpt(sample))


def _build_shared_values(key: str, sample: "Sample", repeat: int) -> tuple[Any, ...]:
    if not 0 <= repeat < _INT64:
        raise ConfigError(f"repeat must be at least 0 and below 2**63, not {repeat!r}")
    if not key.isprintable() or not 0 < len(key) <= _MAX_SAMPLE_ID_LENGTH:
        raise ConfigError(
            f"{key[:50]!r} is not a valid sample key", hint="create keys with sample_key()"
        )
    index, group = sample.index, sample.group_index
    if (index is not None and not -_INT64 <= index < NO_POSITION) or (
        group is not None and not -_INT64 <= group < _INT64
    ):
        raise WireError(
            f"index {index} or group {group} does not fit into 64 bits",
            where=f"sample {sample.id!r}",
        )
    return (
        key,
        NO_POSITION if index is None else index,
        to_column_id(sample.id),
        repeat,
        group,
        str(sample.status),
        *_compute_consumption(sample.trajectory),
        time.time(),
    )


def _compute_consumption(trajectory: "Trajectory | None") -> tuple[Any, ...]:
    """Return input tokens, output tokens, cost, latency and whether a cache answered.

    A sum is None as soon as one call lacks the number, unless the trajectory has the total.
    """
    if trajectory is None:
        return (None, None, None, None, False)
    calls, latency, cost = trajectory.calls, trajectory.duration, trajectory.cost_usd
    # The common case, without the lists below.
    if len(calls) == 1 and latency is not None and calls[0].usage is not None:
        usage: Usage = calls[0].usage
        read, written = (
            _drop_implausible(usage.input_tokens),
            _drop_implausible(usage.output_tokens),
        )
        return (
            read,
            written,
            usage.cost_usd if cost is None else cost,
            latency,
            _is_cached(calls[0]),
        )
    if latency is None and calls and all(call.latency_s is not None for call in calls):
        latency = sum(call.latency_s or 0.0 for call in calls)
    sums: list[Any] = []
    for name in ("input_tokens", "output_tokens", "cost_usd"):
        found = [getattr(call.usage, name, None) for call in calls]
        if name != "cost_usd":
            found = [_drop_implausible(tokens) for tokens in found]
        sums.append(None if not found or None in found else sum(found))
    read, written = map(_drop_implausible, sums[:2])
    return (
        read,
        written,
        sums[2] if cost is None else cost,
        latency,
        any(map(_is_cached, calls)),
    )


def _is_cached(call: "ModelCall") -> bool:
    # An extra field, absent from most calls.
    extra = call.__pydantic_extra__
    return extra is not None and extra.get("cached") is True


def _drop_implausible(tokens: int | None) -> int | None:
    # Servers report nonsense at times; one such number would spoil the sums of the run.
    return tokens if tokens is not None and 0 <= tokens <= _MAX_ROLLOUT_TOKENS else None


def to_column_id(text: str) -> str:
    """Return a sample's id as stored: one that does not fit is cut and marked by a digest.

    The same id gives the same column in every run, so that runs can be compared by it.
    """
    if len(text) <= _MAX_SAMPLE_ID_LENGTH and text.isascii() and "\0" not in text:
        return text
    plain = to_column_text(text)
    if plain == text and len(text) <= _MAX_SAMPLE_ID_LENGTH:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{plain[: _MAX_SAMPLE_ID_LENGTH - 20]}…{digest}"


def encode_body(body: bytes) -> tuple[str, bytes]:
    """Return the name of the codec and the encoded bytes of a body."""
    if len(body) < _MIN_COMPRESSED_BYTES:
        return PLAIN, body
    # Level 1, the fastest: compression is on the path of every large sample.
    return ZLIB, zlib.compress(body, 1)


def decode_body(codec: str, blob: bytes, *, where: str) -> bytes:
    """Decode a body that `encode_body` encoded. Raises `StoreError`."""
    if codec == PLAIN:
        return bytes(blob)
    if codec == ZLIB:
        try:
            return zlib.decompress(blob)
        except zlib.error as error:
            raise StoreError(f"a stored sample is damaged: {error}", where=where) from error
    raise StoreError(
        f"a stored sample has the codec {codec!r}, which this version of assay does not support",
        where=where,
        hint="upgrade assay",
    )
