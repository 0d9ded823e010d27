"""The content of `eval_protocol_info`: a result without its score, shortened to fit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bounded_json import PlainJson, count_utf16_units, shorten, to_plain, write_compact
from .field_types import replace_lone_surrogates

# For annotations only: the result type imports this module.
if TYPE_CHECKING:
    from .evaluate_result import EvaluateResult, Metric

# Characters, however a reader counts them.
MAX_INFO = 512
# Other writers may exceed the 512 characters; a longer text is not parsed.
_MAX_READ_CHARACTERS = 1 << 20
# The shortest possible entries: more of them than fit are dropped without serializing any.
_MIN_STEP_LENGTH = len('{"step_index":0,"base_reward":0.0,"terminated":true}')
_MIN_METRIC_LENGTH = len('"":{"score":0.0,"reason":""}')
# A long error leaves this much of the reason, quotes included.
_MIN_REASON_LENGTH = 100

_DROPPABLE_FIELDS = (
    *("step_outputs", "metrics.reason", "metrics.extra", "extra", "trajectory_info"),
    *("final_control_plane_info", "metrics", "reason", "error"),
)
_CHANGEABLE_FIELDS = (
    "score",
    *(name for name in _DROPPABLE_FIELDS if not name.startswith("metrics.")),
)
# Names with a meaning of their own in the info, which unknown fields of a result cannot use.
_RESERVED_NAMES = frozenset({"score", "measures", "dropped", "changed"})
# Levels of shortening: at level n, the sections up to n are dropped. The order goes from the
# bulkiest sections to those that a reader needs most.
_STEPS, _METRIC_DETAILS, _EXTRA, _TRAJECTORY, _CONTROL_PLANE, _METRICS, _TEXTS = range(1, 8)


def info_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of `eval_protocol_info`."""
    path = Path(__file__).with_name("evaluate_result_info.schema.json")
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def to_finite_float(value: float | None) -> float | None:
    """Return `value` as a finite float, else None."""
    # `model_copy(update=...)` does not validate, so a score may be anything.
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


@dataclass(frozen=True)
class _InfoSection:
    """Entries that the info contains from level `begins` until before level `ends`."""

    ends: int
    name: str
    """The name in `changed`."""

    entries: dict[str, Any] | None
    """None when the section exceeds the limit on its own."""

    changed: bool = False
    names_dropped: tuple[str, ...] = ()
    begins: int = 0

    def is_included(self, level: int) -> bool:
        return self.begins <= level < self.ends


def write_info(result: "EvaluateResult") -> str:
    """Return JSON of at most `MAX_INFO` characters that lists its dropped parts. Never raises."""
    parts = tuple(_build_sections(result))
    for level in range(_TEXTS):
        if any(part.entries is None and part.is_included(level) for part in parts):
            continue
        text = write_compact(_compose_info(result, parts, level))
        if count_utf16_units(text) <= MAX_INFO:
            return text
    base = _compose_info(result, parts, _TEXTS)
    return write_compact(_add_shortened_texts(base, result.reason, result.error))


def _compose_info(
    result: "EvaluateResult", parts: Sequence[_InfoSection], level: int
) -> dict[str, Any]:
    score = to_finite_float(result.score)
    extra = result.model_extra or {}
    dropped, changed = (set(_read_earlier_losses(extra, name)) for name in ("dropped", "changed"))
    if any(name in _RESERVED_NAMES and not _read_earlier_losses(extra, name) for name in extra):
        dropped.add("extra")
    if score is None and result.score is not None:
        changed.add("score")
    info: dict[str, Any] = {"is_score_valid": bool(result.is_score_valid) and score is not None}
    for part in parts:
        if part.is_included(level):
            info.update(part.entries or {})
            changed.update((part.name,) if part.changed else ())
        elif level >= part.ends:
            dropped.update(part.names_dropped)
    return _add_loss_lists(info, dropped, changed)


def _add_loss_lists(info: dict[str, Any], dropped: set[str], changed: set[str]) -> dict[str, Any]:
    if "metrics" in dropped:
        dropped = dropped - {"metrics.reason", "metrics.extra"}
    for key, names, order in (
        ("dropped", dropped, _DROPPABLE_FIELDS),
        ("changed", changed, _CHANGEABLE_FIELDS),
    ):
        if names:
            info[key] = [name for name in order if name in names]
    return info


def _read_earlier_losses(extra: Mapping[str, Any], key: str) -> list[str]:
    # A result that was itself read from metadata already lists dropped and changed parts.
    allowed = {"dropped": _DROPPABLE_FIELDS, "changed": _CHANGEABLE_FIELDS}.get(key, ())
    names = extra.get(key)
    if isinstance(names, list) and all(isinstance(n, str) and n in allowed for n in names):
        return names
    return []


def _build_sections(result: "EvaluateResult") -> Iterator[_InfoSection]:
    for name in ("reason", "error"):
        if (text := getattr(result, name)) is not None:
            yield _build_section(_TEXTS, name, {name: text}, names_dropped=())
    if result.metrics:
        yield from _build_metric_sections(result.metrics)
    for ends, name in (
        (_CONTROL_PLANE, "final_control_plane_info"),
        (_TRAJECTORY, "trajectory_info"),
    ):
        if (content := getattr(result, name)) is not None:
            yield _build_section(ends, name, {name: content}, names_dropped=(name,))
    if (steps := result.step_outputs) is not None:
        # The length check comes first, so that ten thousand steps cost nothing.
        fit = len(steps) <= MAX_INFO // _MIN_STEP_LENGTH and all(
            to_finite_float(step.base_reward) is not None for step in steps
        )
        names = ("step_index", "base_reward", "terminated", "control_plane_info", "reason")
        written = []
        for step in steps if fit else ():
            entry = {name: getattr(step, name) for name in names}
            given = {**entry, "metrics": step.metrics or None}
            known = {name: value for name, value in given.items() if value is not None}
            written.append({**(step.model_extra or {}), **known})
        entries = {"step_outputs": written} if fit else None
        yield _build_section(_STEPS, "step_outputs", entries, names_dropped=("step_outputs",))
    extra = {k: v for k, v in (result.model_extra or {}).items() if k not in _RESERVED_NAMES}
    if extra:
        yield _build_section(_EXTRA, "extra", extra, names_dropped=("extra",))


def _build_section(
    ends: int, name: str, entries: dict[str, Any] | None, *, names_dropped: tuple[str, ...]
) -> _InfoSection:
    plain = None if entries is None else to_plain(entries, room=MAX_INFO)
    if plain is None:
        return _InfoSection(ends, name, None, names_dropped=names_dropped)
    return _InfoSection(ends, name, plain.value, plain.changed, names_dropped)


def _build_metric_sections(metrics: "Mapping[str, Metric]") -> Iterator[_InfoSection]:
    # Twice: with reasons and extras, and for later levels with their numbers only.
    details = []
    if any(metric.reason for metric in metrics.values()):
        details.append("metrics.reason")
    if any(metric.model_extra for metric in metrics.values()):
        details.append("metrics.extra")
    for begins, ends, names_dropped in (
        (0, _METRIC_DETAILS, tuple(details)),
        (_METRIC_DETAILS, _METRICS, ("metrics",)),
    ):
        plain = _write_metric_entries(metrics, bare=begins > 0)
        entries = None if plain is None else plain.value
        changed = plain is not None and plain.changed
        yield _InfoSection(ends, "metrics", entries, changed, names_dropped, begins)


def _write_metric_entries(metrics: "Mapping[str, Metric]", *, bare: bool) -> PlainJson | None:
    if len(metrics) > MAX_INFO // _MIN_METRIC_LENGTH:
        return None
    entries: dict[str, dict[str, Any]] = {}
    unreal = False
    for name, metric in metrics.items():
        score = to_finite_float(metric.score)
        unreal |= score is None and metric.score is not None
        # The published schema limits a metric to [0, 1]; other scores are written as measures.
        place = "metrics" if score is not None and 0 <= score <= 1 else "measures"
        entry: dict[str, Any] = {"score": score, "reason": "" if bare else metric.reason or ""}
        if to_finite_float(metric.weight) is not None:
            entry["weight"] = metric.weight
        if score is None or not metric.is_score_valid:
            entry["is_score_valid"] = False
        if not bare:
            entry = {**(metric.model_extra or {}), **entry}
        entries.setdefault(place, {})[name] = entry
    plain = to_plain(entries, room=MAX_INFO)
    return plain and PlainJson(plain.value, plain.changed or unreal)


def _add_shortened_texts(
    base: dict[str, Any], reason: str | None, error: str | None
) -> dict[str, Any]:
    # The reason is shortened first, then the error: the error explains why a score is invalid.
    whole_error = to_plain(error, room=MAX_INFO)
    if reason is not None and whole_error is not None:
        info = _add_texts(base, "reason", reason="", error=whole_error.value)
        room = MAX_INFO - count_utf16_units(write_compact(info)) + len('""')
        if room >= min(_measure_quoted_text(reason), _MIN_REASON_LENGTH):
            return {**info, "reason": shorten(reason, room=room)}
    if reason is not None and _measure_quoted_text(reason) > _MIN_REASON_LENGTH:
        reason = shorten(reason, room=_MIN_REASON_LENGTH)
        base = _add_texts(base, "reason")
    reason = None if reason is None else replace_lone_surrogates(reason)
    info = _add_texts(base, "error", reason=reason, error="")
    room = MAX_INFO - count_utf16_units(write_compact(info)) + len('""')
    return {**info, "error": shorten(error or "", room=room)}


def _add_texts(base: dict[str, Any], shortened: str, **texts: str | None) -> dict[str, Any]:
    given = {name: text for name, text in texts.items() if text is not None}
    dropped = {*base.get("dropped", ()), shortened}
    return _add_loss_lists({**base, **given}, dropped, set(base.get("changed", ())))


def _measure_quoted_text(text: str) -> int:
    # Only a prefix of a long text is measured: it exceeds the limit either way.
    return count_utf16_units(write_compact(replace_lone_surrogates(text[: MAX_INFO + 1])))


@dataclass
class InfoReading:
    """The readable fields of an info, and the faults found in it."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of a result, not yet validated; never `score`, `error` or `is_score_valid`."""

    score: Any = None
    """A score inside the info, where the format does not allow one."""

    is_score_valid: bool = True
    error: str | None = None
    faults: list[str] = field(default_factory=list)


def read_info(text: str | None) -> InfoReading:
    """Read an info of any writer. Never raises: problems are recorded as faults."""
    reading = InfoReading()
    if text is None:
        return reading
    try:
        info = _parse_info(text)
    except (ValueError, RecursionError) as refusal:
        reading.faults.append(f"is unreadable ({refusal})")
        return reading
    reading.score = info.pop("score", None)
    valid, error = info.pop("is_score_valid", True), info.pop("error", None)
    if isinstance(valid, bool):
        reading.is_score_valid = valid
    else:
        reading.faults.append(f"contains an `is_score_valid` of {valid!r:.40}")
    if error is None or isinstance(error, str):
        reading.error = error
    else:
        reading.faults.append("contains an `error` that is not a string")
    reading.fields = {**info, **_merge_metrics(info, reading.faults)}
    reading.fields.pop("measures", None)
    return reading


def _parse_info(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError("not a string")
    if len(text) > _MAX_READ_CHARACTERS:
        raise ValueError(f"longer than {_MAX_READ_CHARACTERS} characters")
    info = json.loads(
        text,
        parse_constant=_parse_finite_float,
        parse_float=_parse_finite_float,
        object_pairs_hook=_refuse_duplicate_keys,
    )
    if not isinstance(info, dict):
        raise ValueError("not a JSON object")
    return info


def _parse_finite_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"contains {text:.40}")
    return value


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("an object contains the same key twice")
    return entries


def _merge_metrics(info: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    # The schema requires a reason, so that a missing one was written as an empty text.
    merged: dict[str, Any] = {}
    for place in ("metrics", "measures"):
        content = info.get(place)
        if content is None:
            continue
        if not isinstance(content, dict):
            faults.append(f"contains `{place}` that are not an object")
            continue
        if repeated := merged.keys() & content.keys():
            faults.append(f"contains {min(repeated)!r:.40} in both metrics and measures")
        merged = {**content, **merged}
    for name, entry in merged.items():
        if isinstance(entry, dict) and entry.get("reason") == "":
            merged[name] = {key: value for key, value in entry.items() if key != "reason"}
    return {"metrics": merged}
