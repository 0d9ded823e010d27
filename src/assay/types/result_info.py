"""What `eval_protocol_info` holds: all that a result says beside its score, as far as it fits."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

from .bounded_json import Plain, shorten, to_plain, width, write_compact
from .field_types import well_formed

MAX_INFO = 512
"""Characters of the info, under every way of counting them."""

_LARGEST_READ = 1 << 20
"""Other writers may exceed the 512 characters; what is longer than this is not read."""

_SMALLEST_STEP = len('{"step_index":0,"base_reward":0.0,"terminated":true}')
_SMALLEST_METRIC = len('"":{"score":0.0,"reason":""}')
_LEAST_REASON = 100
"""A long error leaves this much of the reason, quotes included."""

_DROPPABLE = (
    *("step_outputs", "metrics.reason", "metrics.extra", "extra", "trajectory_info"),
    *("final_control_plane_info", "metrics", "reason", "error"),
)
_CHANGEABLE = ("score", *(name for name in _DROPPABLE if not name.startswith("metrics.")))
_RESERVED = frozenset({"score", "measures", "dropped", "changed"})
"""Names in the info that an unknown field of a result cannot have for itself."""

_STEPS, _METRIC_DETAILS, _EXTRA, _TRAJECTORY, _CONTROL_PLANE, _METRICS, _TEXTS = range(1, 8)
"""The order in which things are left out. At level n, everything up to n is."""


class MetricFields(Protocol):
    """What is written of a metric."""

    @property
    def score(self) -> float | None: ...
    @property
    def weight(self) -> float | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def is_score_valid(self) -> bool: ...
    @property
    def model_extra(self) -> dict[str, Any] | None: ...


class StepFields(Protocol):
    """What is written of a step."""

    @property
    def step_index(self) -> int | str: ...
    @property
    def base_reward(self) -> float | None: ...
    @property
    def terminated(self) -> bool: ...
    @property
    def control_plane_info(self) -> dict[str, Any] | None: ...
    @property
    def metrics(self) -> dict[str, Any]: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def model_extra(self) -> dict[str, Any] | None: ...


class ResultFields(Protocol):
    """What is written of a result. The result type imports this module, not the reverse."""

    @property
    def score(self) -> float | None: ...
    @property
    def is_score_valid(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def metrics(self) -> Mapping[str, MetricFields]: ...
    @property
    def step_outputs(self) -> Sequence[StepFields] | None: ...
    @property
    def final_control_plane_info(self) -> dict[str, Any] | None: ...
    @property
    def trajectory_info(self) -> dict[str, Any] | None: ...
    @property
    def model_extra(self) -> dict[str, Any] | None: ...
    def to_json(self) -> str: ...
    @classmethod
    def from_json(cls, data: str | bytes) -> Self: ...


def info_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of what `eval_protocol_info` holds."""
    path = Path(__file__).with_name("evaluate_result_info.schema.json")
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def finite(value: float | None) -> float | None:
    """`value`, or None where a copy of a result was given something that is no number."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


@dataclass(frozen=True)
class _Part:
    """Entries of the info that are there from level `begins` to before level `ends`."""

    ends: int
    name: str
    """Its name in `changed`."""

    entries: dict[str, Any] | None
    """None when they do not fit even alone."""

    changed: bool = False
    names_dropped: tuple[str, ...] = ()
    begins: int = 0

    def stands(self, level: int) -> bool:
        return self.begins <= level < self.ends


def write_info(result: ResultFields) -> str:
    """JSON of at most `MAX_INFO` characters that says what had no room in it. Never raises."""
    parts = tuple(_parts(result))
    for level in range(_TEXTS):
        if any(part.entries is None and part.stands(level) for part in parts):
            continue
        text = write_compact(_compose(result, parts, level))
        if width(text) <= MAX_INFO:
            return text
    base = _compose(result, parts, _TEXTS)
    return write_compact(_with_short_texts(base, result.reason, result.error))


def _compose(result: ResultFields, parts: Sequence[_Part], level: int) -> dict[str, Any]:
    """The info at this level."""
    score = finite(result.score)
    extra = result.model_extra or {}
    dropped, changed = (set(_carried(extra, name)) for name in ("dropped", "changed"))
    if any(name in _RESERVED and not _carried(extra, name) for name in extra):
        dropped.add("extra")
    if score is None and result.score is not None:
        changed.add("score")
    info: dict[str, Any] = {"is_score_valid": bool(result.is_score_valid) and score is not None}
    for part in parts:
        if part.stands(level):
            info.update(part.entries or {})
            changed.update((part.name,) if part.changed else ())
        elif level >= part.ends:
            dropped.update(part.names_dropped)
    return _listing(info, dropped, changed)


def _listing(info: dict[str, Any], dropped: set[str], changed: set[str]) -> dict[str, Any]:
    """`info` with what was dropped and changed, each once, in the order of dropping."""
    if "metrics" in dropped:
        dropped = dropped - {"metrics.reason", "metrics.extra"}
    for key, names, order in (("dropped", dropped, _DROPPABLE), ("changed", changed, _CHANGEABLE)):
        if names:
            info[key] = [name for name in order if name in names]
    return info


def _carried(extra: Mapping[str, Any], key: str) -> list[str]:
    """What a result that was itself read from metadata says it had lost by then."""
    allowed = {"dropped": _DROPPABLE, "changed": _CHANGEABLE}.get(key, ())
    names = extra.get(key)
    if isinstance(names, list) and all(isinstance(n, str) and n in allowed for n in names):
        return names
    return []


def _parts(result: ResultFields) -> Iterator[_Part]:
    for name in ("reason", "error"):
        if (text := getattr(result, name)) is not None:
            yield _part(_TEXTS, name, {name: text}, names_dropped=())
    if result.metrics:
        yield from _metric_parts(result.metrics)
    for ends, name in (
        (_CONTROL_PLANE, "final_control_plane_info"),
        (_TRAJECTORY, "trajectory_info"),
    ):
        if (content := getattr(result, name)) is not None:
            yield _part(ends, name, {name: content}, names_dropped=(name,))
    if (steps := result.step_outputs) is not None:
        # Ten thousand steps are not looked at to find that nine would fit.
        fit = len(steps) <= MAX_INFO // _SMALLEST_STEP and all(
            finite(step.base_reward) is not None for step in steps
        )
        entries = {"step_outputs": [_step(step) for step in steps]} if fit else None
        yield _part(_STEPS, "step_outputs", entries, names_dropped=("step_outputs",))
    extra = {k: v for k, v in (result.model_extra or {}).items() if k not in _RESERVED}
    if extra:
        yield _part(_EXTRA, "extra", extra, names_dropped=("extra",))


def _part(
    ends: int, name: str, entries: dict[str, Any] | None, *, names_dropped: tuple[str, ...]
) -> _Part:
    plain = None if entries is None else to_plain(entries, room=MAX_INFO)
    if plain is None:
        return _Part(ends, name, None, names_dropped=names_dropped)
    return _Part(ends, name, plain.value, plain.changed, names_dropped)


def _metric_parts(metrics: Mapping[str, MetricFields]) -> Iterator[_Part]:
    """The metrics twice: with all they say, and with their numbers only."""
    details = []
    if any(metric.reason for metric in metrics.values()):
        details.append("metrics.reason")
    if any(metric.model_extra for metric in metrics.values()):
        details.append("metrics.extra")
    full = _metric_entries(metrics, bare=False)
    bare = _metric_entries(metrics, bare=True)
    yield _metric_part(full, 0, _METRIC_DETAILS, tuple(details))
    yield _metric_part(bare, _METRIC_DETAILS, _METRICS, ("metrics",))


def _metric_part(
    plain: Plain | None, begins: int, ends: int, names_dropped: tuple[str, ...]
) -> _Part:
    entries = None if plain is None else plain.value
    changed = plain is not None and plain.changed
    return _Part(ends, "metrics", entries, changed, names_dropped, begins)


def _metric_entries(metrics: Mapping[str, MetricFields], *, bare: bool) -> Plain | None:
    if len(metrics) > MAX_INFO // _SMALLEST_METRIC:
        return None
    entries: dict[str, dict[str, Any]] = {}
    unreal = False
    for name, metric in metrics.items():
        score = finite(metric.score)
        unreal |= score is None and metric.score is not None
        # The published schema bounds a metric; what lies outside has a place of its own.
        place = "metrics" if score is not None and 0 <= score <= 1 else "measures"
        entries.setdefault(place, {})[name] = _metric(metric, score, bare=bare)
    plain = to_plain(entries, room=MAX_INFO)
    return plain and Plain(plain.value, plain.changed or unreal)


def _metric(metric: MetricFields, score: float | None, *, bare: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"score": score, "reason": "" if bare else metric.reason or ""}
    if finite(metric.weight) is not None:
        entry["weight"] = metric.weight
    if score is None or not metric.is_score_valid:
        entry["is_score_valid"] = False
    return entry if bare else {**(metric.model_extra or {}), **entry}


def _step(step: StepFields) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "step_index": step.step_index,
        "base_reward": step.base_reward,
        "terminated": step.terminated,
        "control_plane_info": step.control_plane_info,
        "metrics": step.metrics or None,
        "reason": step.reason,
    }
    given = {name: value for name, value in entry.items() if value is not None}
    return {**(step.model_extra or {}), **given}


def _with_short_texts(
    base: dict[str, Any], reason: str | None, error: str | None
) -> dict[str, Any]:
    """`base` with the reason shortened to make room, then the error too if that is not enough."""
    whole_error = to_plain(error, room=MAX_INFO)
    if reason is not None and whole_error is not None:
        info = _naming(base, "reason", reason="", error=whole_error.value)
        room = MAX_INFO - width(write_compact(info)) + len('""')
        if room >= min(_quoted(reason), _LEAST_REASON):
            return {**info, "reason": shorten(reason, room=room)}
    if reason is not None and _quoted(reason) > _LEAST_REASON:
        reason = shorten(reason, room=_LEAST_REASON)
        base = _naming(base, "reason")
    reason = None if reason is None else well_formed(reason)
    info = _naming(base, "error", reason=reason, error="")
    room = MAX_INFO - width(write_compact(info)) + len('""')
    return {**info, "error": shorten(error or "", room=room)}


def _naming(base: dict[str, Any], shortened: str, **texts: str | None) -> dict[str, Any]:
    """`base` with these texts, and with `shortened` named among what was dropped."""
    given = {name: text for name, text in texts.items() if text is not None}
    dropped = {*base.get("dropped", ()), shortened}
    return _listing({**base, **given}, dropped, set(base.get("changed", ())))


def _quoted(text: str) -> int:
    """The width of `text` as JSON; of a long one, of its beginning."""
    return width(write_compact(well_formed(text[: MAX_INFO + 1])))


@dataclass
class InfoReading:
    """What could be read of an info, and what could not."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of a result, not yet checked; never `score`, `error` or `is_score_valid`."""

    score: Any = None
    """A number that stands in the info, where the format has no place for one."""

    is_score_valid: bool = True
    error: str | None = None
    faults: list[str] = field(default_factory=list)


def read_info(text: str | None) -> InfoReading:
    """Read what any writer of this format wrote. Never raises: what is wrong is a fault."""
    reading = InfoReading()
    if text is None:
        return reading
    try:
        info = _parse(text)
    except (ValueError, RecursionError) as error:
        reading.faults.append(f"is unreadable ({error})")
        return reading
    reading.score = info.pop("score", None)
    valid, said = info.pop("is_score_valid", True), info.pop("error", None)
    if isinstance(valid, bool):
        reading.is_score_valid = valid
    else:
        reading.faults.append(f"holds an `is_score_valid` of {valid!r:.40}")
    if said is None or isinstance(said, str):
        reading.error = said
    else:
        reading.faults.append("holds an `error` that is not a string")
    reading.fields = {**info, **_all_metrics(info, reading.faults)}
    reading.fields.pop("measures", None)
    return reading


def _parse(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError("not a string")
    if len(text) > _LARGEST_READ:
        raise ValueError(f"longer than {_LARGEST_READ} characters")
    info = json.loads(
        text, parse_constant=_refuse, parse_float=_parse_float, object_pairs_hook=_once
    )
    if not isinstance(info, dict):
        raise ValueError("not a JSON object")
    return info


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"holds {constant:.40}")


def _parse_float(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refuse(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("the same key twice in one object")
    return entries


def _all_metrics(info: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Metrics and measures as the one field they were, empty reasons taken away."""
    merged: dict[str, Any] = {}
    for place in ("metrics", "measures"):
        content = info.get(place)
        if content is None:
            continue
        if not isinstance(content, dict):
            faults.append(f"holds `{place}` that are not an object")
            continue
        if repeated := merged.keys() & content.keys():
            faults.append(f"holds {min(repeated)!r:.40} among metrics and measures")
        merged = {**content, **merged}
    return {"metrics": {name: _without_empty_reason(entry) for name, entry in merged.items()}}


def _without_empty_reason(entry: Any) -> Any:
    if isinstance(entry, dict) and entry.get("reason") == "":
        return {name: value for name, value in entry.items() if name != "reason"}
    return entry
