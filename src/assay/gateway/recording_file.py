"""Recordings of model calls: portable files with one call in each line.

The first line describes the file and has the digest of the other ones. The calls of a rollout are
adjacent and in their order, so that two recordings of the same dataset can be compared by `diff`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from assay.errors import ConfigError, WireError
from assay.types import Sample, open_private, replace_private

from .recorded_exchange import RecordedExchange, list_exchanges
from .redacted_values import redact_values
from .request_parts import expand_difference

RECORDING_FORMAT = "assay-calls"
_VERSION = 1
_MAX_LINE_BYTES = 64 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_RECORD_AGAIN = "write the recording again with `assay runs record`"


def _check_recorded_text(text: str) -> str:
    # Both are shown in reports.
    if not text.isprintable():
        raise ValueError("the text contains control characters")
    return text


class RecordingHeader(BaseModel):
    """The first line of a recording."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal["assay-calls"]
    version: int
    run: Annotated[str, AfterValidator(_check_recorded_text)]
    """The run that the calls are from."""

    model: Annotated[str, AfterValidator(_check_recorded_text)] | None = None
    samples: int = Field(ge=0)
    """Rollouts with calls."""

    calls: int = Field(ge=0)
    cost_usd: float | None = None
    """The cost of all calls when they were made. None: unknown."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """The digest of all further lines."""


class RecordedRollout:
    """The calls of one rollout, with their requests in full."""

    def __init__(self, exchanges: list[RecordedExchange], bodies: list[dict[str, Any]]) -> None:
        self.exchanges = exchanges
        self.bodies = bodies


class Recording:
    """A recording that is read when its calls are needed; only an index is kept in memory."""

    def __init__(self, path: Path, header: RecordingHeader, index: dict[bytes, tuple[int, int]]):
        self.path = path
        self.header = header
        self._index = index

    def __repr__(self) -> str:
        return f"Recording({self.path}, {self.header.calls} calls)"

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Check a whole recording and index it. Raises `ConfigError` with the line of a fault."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                header = _read_recording_header(path, file.readline(_MAX_HEADER_BYTES))
                index = _index_lines(path, header, file)
        except OSError as error:
            raise ConfigError(
                f"the recording cannot be read: {error.strerror}",
                where=str(path),
                hint="record one with `assay runs record RUN -o FILE`",
            ) from None
        return cls(path, header, index)

    def describe(self) -> dict[str, Any]:
        """Return the identity of the recording, wherever its file is."""
        header = self.header
        return {
            "run": header.run,
            "sha256": header.sha256,
            "calls": header.calls,
            "cost_usd": header.cost_usd,
        }

    def load(self, sample: str, repeat: int) -> RecordedRollout | None:
        """Read the calls of a rollout; None if it is not recorded."""
        found = self._index.get(_build_key(sample, repeat))
        return None if found is None else self._load_at(*found)

    def load_all(self) -> Iterator[RecordedRollout]:
        """Read all rollouts, one after the other."""
        for offset, line in self._index.values():
            yield self._load_at(offset, line)

    def _load_at(self, offset: int, line: int) -> RecordedRollout:
        exchanges: list[RecordedExchange] = []
        bodies: dict[int, dict[str, Any]] = {}
        with self.path.open("rb") as file:
            file.seek(offset)
            for number, data in enumerate(file, start=line):
                exchange = _parse_exchange(self.path, number, data)
                if exchange.call != len(exchanges):
                    break  # the first call of the next rollout
                try:
                    body = expand_difference(exchange.request, bodies, exchange.list_field)
                    exchange.build_call()
                except WireError as error:
                    raise _build_fault(self.path, number, error.message) from None
                except ValidationError as error:
                    raise _build_fault(self.path, number, _describe_invalid(error)) from None
                bodies[exchange.call] = body
                exchanges.append(exchange)
        return RecordedRollout(exchanges, list(bodies.values()))


def write_recording(
    target: Path,
    samples: Iterable[tuple[Sample, int]],
    *,
    run: str,
    endpoint: Mapping[str, Any],
) -> RecordingHeader:
    """Write the calls of samples, each with its repeat, without keys; return the header.

    The file can be read by its owner only, unless it replaces one with other permissions.
    """
    body = target.with_name(f".{target.name}.{os.getpid()}.calls")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with open_private(body) as file:
            facts = _write_lines(file, samples, endpoint)
        if not facts["calls"]:
            raise ConfigError(
                f"{run!r} has no recorded calls of a model, so that nothing can be replayed",
                hint="an agent of your own must call the model of the run, see `endpoint`",
            )
        model = f"{endpoint['provider']}:{endpoint['model']}" if endpoint.get("model") else None
        header = RecordingHeader(
            format="assay-calls", version=_VERSION, run=run, model=model, **facts
        )
        with open_private(unfinished) as file, body.open(encoding="utf-8") as lines:
            file.write(f"{header.model_dump_json(exclude_none=True)}\n")
            shutil.copyfileobj(lines, file)
        replace_private(unfinished, target)
    except OSError as error:
        raise ConfigError(
            f"the recording cannot be written: {error.strerror}", where=str(target)
        ) from None
    finally:
        body.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
    return header


def _write_lines(
    file: Any, samples: Iterable[tuple[Sample, int]], endpoint: Mapping[str, Any]
) -> dict[str, Any]:
    digest = hashlib.sha256()
    rollouts = calls = 0
    cost: float | None = 0.0
    for sample, repeat in samples:
        if sample.trajectory is None:
            continue
        before = calls
        for exchange in list_exchanges(
            sample.trajectory, sample=sample.id, repeat=repeat, endpoint=endpoint
        ):
            line = f"{write_exchange(exchange)}\n"
            digest.update(line.encode())
            file.write(line)
            calls += 1
            own = (exchange.record.get("usage") or {}).get("cost_usd")
            known = float(own) if isinstance(own, int | float) else None
            cost = None if cost is None or known is None else cost + known
        rollouts += calls > before
    return {"samples": rollouts, "calls": calls, "cost_usd": cost, "sha256": digest.hexdigest()}


def write_exchange(exchange: RecordedExchange) -> str:
    """Return the line of a call, without keys."""
    plain = exchange.model_dump(mode="json", exclude_defaults=True)
    # The id must stay as it is, to be found again.
    return to_json({**redact_values(plain), "sample": exchange.sample}).decode()


def _read_recording_header(path: Path, line: bytes) -> RecordingHeader:
    try:
        plain = from_json(line)
        known = isinstance(plain, dict) and plain.get("format") == RECORDING_FORMAT
    except ValueError:
        known = False
    if not known:
        raise ConfigError(
            "the file is not a recording of model calls", where=f"{path}:1", hint=_RECORD_AGAIN
        )
    if plain.get("version") != _VERSION:
        raise ConfigError(
            f"the recording has version {plain.get('version')!r}; this assay reads {_VERSION}",
            where=f"{path}:1",
            hint=_RECORD_AGAIN,
        )
    try:
        return RecordingHeader.model_validate(plain)
    except ValidationError as error:
        raise _build_fault(path, 1, _describe_invalid(error)) from None


def _index_lines(path: Path, header: RecordingHeader, file: Any) -> dict[bytes, tuple[int, int]]:
    index: dict[bytes, tuple[int, int]] = {}
    digest = hashlib.sha256()
    last, expected, number = b"", 0, 1
    while True:
        offset = file.tell()
        data = file.readline(_MAX_LINE_BYTES + 1)
        if not data:
            break
        number += 1
        if len(data) > _MAX_LINE_BYTES:
            raise _build_fault(path, number, f"the line has more than {_MAX_LINE_BYTES:,} bytes")
        digest.update(data)
        exchange = _parse_exchange(path, number, data, unique=False)
        key = _build_key(exchange.sample, exchange.repeat)
        if key != last:
            if key in index:
                name = f"{exchange.sample!r}, repeat {exchange.repeat}"
                raise _build_fault(path, number, f"the calls of sample {name} occur twice")
            index[key] = (offset, number)
            last, expected = key, 0
        if exchange.call != expected:
            problem = f"the line has call {exchange.call}, but call {expected} was expected"
            raise _build_fault(path, number, problem)
        expected += 1
    if number - 1 != header.calls:
        problem = f"the file has {number - 1} calls, but its first line counts {header.calls}"
        raise _build_fault(path, number, problem)
    if digest.hexdigest() != header.sha256:
        raise _build_fault(path, 1, "the calls were changed after they were recorded")
    return index


def _parse_exchange(
    path: Path, number: int, data: bytes, *, unique: bool = True
) -> RecordedExchange:
    try:
        # The check for repeated names takes longer than all else: it is for lines that are used.
        plain = (
            json.loads(data, object_pairs_hook=_refuse_repeated_fields)
            if unique
            else from_json(data)
        )
        return RecordedExchange.model_validate(plain)
    except ValidationError as error:
        raise _build_fault(path, number, _describe_invalid(error)) from None
    except (ValueError, RecursionError) as error:
        raise _build_fault(path, number, f"the line is not JSON: {error}") from None


def _refuse_repeated_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _describe_invalid(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"`{field}` is invalid: {first['msg']}"


def _build_fault(path: Path, number: int, problem: str) -> ConfigError:
    return ConfigError(problem, where=f"{path}:{number}", hint=_RECORD_AGAIN)


def _build_key(sample: str, repeat: int) -> bytes:
    return blake2b(f"{repeat}\0{sample}".encode("utf-8", "replace"), digest_size=16).digest()
