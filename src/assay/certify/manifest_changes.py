"""Changes between two manifests, and whether they weaken the criteria."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from assay.errors import ConfigError
from assay.scorers import find_metric
from assay.stats import ReportSection
from assay.types import (
    AgentDefinition,
    EvaluationProfile,
    Manifest,
    SuccessCriterion,
)

from .graders import JUDGE_METRIC

ChangeClass = Literal["weakened", "moved", "strengthened", "other"]
"""`moved`: the criterion changed in a way that cannot be ordered."""

# From the most lenient to the strictest. The mean cannot be ordered among them.
_STATISTICS_BY_STRICTNESS = ("p50", "p90", "p95", "p99", "max")


class ManifestChange(ReportSection):
    """One changed value."""

    agent: str | None
    """None for a change outside of the agents."""

    path: str
    change: ChangeClass
    old: Any
    new: Any
    """As in the manifest; null for a missing value."""

    note: str = ""


@dataclass(frozen=True)
class _ManifestPath:
    agent: str | None
    path: str

    def change(self, kind: ChangeClass, old: Any, new: Any, note: str = "") -> ManifestChange:
        return ManifestChange(
            agent=self.agent, path=self.path, change=kind, old=old, new=new, note=note
        )

    def at(self, name: str) -> "_ManifestPath":
        return _ManifestPath(self.agent, f"{self.path}.{name}" if self.path else name)


def compare_manifests(
    old: Manifest, new: Manifest, *, agent: str | None = None
) -> tuple[ManifestChange, ...]:
    """List all changes, those that weaken the criteria first.

    Agents and criteria are matched by name: a renamed one is removed and added. Raises
    `ConfigError` when neither manifest has the `agent`.
    """
    before, after = _filter_agents(old.agents, agent), _filter_agents(new.agents, agent)
    if agent is not None and not before and not after:
        known = ", ".join({**old.agents, **new.agents}) or "none"
        raise ConfigError(f"neither manifest has an agent {agent!r}", hint=f"agents are: {known}")
    found: list[ManifestChange] = []
    for key in {**before, **after}:
        found += _compare_agents(key, before.get(key), after.get(key))
    if agent is None:
        found += _compare_other_definitions(old, new)
    order: dict[ChangeClass, int] = {"weakened": 0, "moved": 1, "strengthened": 2, "other": 3}
    return tuple(sorted(found, key=lambda each: order[each.change]))


def _filter_agents(
    agents: dict[str, AgentDefinition], wanted: str | None
) -> dict[str, AgentDefinition]:
    if wanted is None:
        return agents
    return {key: each for key, each in agents.items() if wanted in (key, each.id)}


def _compare_other_definitions(old: Manifest, new: Manifest) -> Iterator[ManifestChange]:
    before, after = _dump_manifest_part(old), _dump_manifest_part(new)
    agents = {**old.agents, **new.agents}
    for values in (before, after):
        defined = values.pop("definitions", {})
        values.update({f"definitions.{key}": defined[key] for key in defined if key not in agents})
    yield from _compare_fields(_ManifestPath(None, ""), before, after)


def _compare_agents(
    key: str, old: AgentDefinition | None, new: AgentDefinition | None
) -> Iterator[ManifestChange]:
    place = _ManifestPath(key, "")
    if old is None or new is None:
        given = old or new
        assert given is not None
        weaker = old is not None and old.evaluation is not None
        kind: ChangeClass = "weakened" if weaker else "other"
        note = "the agent and its definition of done were removed" if weaker else ""
        here, there = (None if each is None else each.name for each in (old, new))
        yield _ManifestPath(key, "agent").change(kind, here, there, note)
        return
    before, after = _dump_manifest_part(old), _dump_manifest_part(new)
    before.pop("evaluation", None)
    after.pop("evaluation", None)
    yield from _compare_fields(place, before, after)
    yield from _compare_evaluations(place.at("evaluation"), old.evaluation, new.evaluation)


def _compare_evaluations(
    place: _ManifestPath, old: EvaluationProfile | None, new: EvaluationProfile | None
) -> Iterator[ManifestChange]:
    if old is None or new is None:
        if old is not None:
            yield place.change(
                "weakened", _dump_manifest_part(old), None, "the agent has no criteria any more"
            )
        elif new is not None:
            yield place.change("strengthened", None, _dump_manifest_part(new))
        return
    yield from _compare_latency_limits(place, old, new)
    yield from _compare_golden_datasets(place, old, new)
    yield from _compare_gates(place, old, new)
    if old.evaluator_model != new.evaluator_model:
        models = (old.evaluator_model, new.evaluator_model)
        yield place.at("evaluator_model").change("moved", *models, "another judge")
    yield from _compare_rubrics(place.at("grading_rubric"), old, new)


def _compare_latency_limits(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    limit, other = old.expected_latency_ms, new.expected_latency_ms
    if limit != other:
        # No limit is the most lenient one.
        lower = other is None or (limit is not None and other > limit)
        kind: ChangeClass = "weakened" if lower else "strengthened"
        yield place.at("expected_latency_ms").change(kind, limit, other)
    was, now = old.latency_statistic, new.latency_statistic
    if was != now:
        kind, note = _classify_statistic_change(was, now)
        if limit is None:
            kind, note = "other", "the old manifest had no limit on it"
        yield place.at("latency_statistic").change(kind, was, now, note)


def _classify_statistic_change(old: str, new: str) -> tuple[ChangeClass, str]:
    if old in _STATISTICS_BY_STRICTNESS and new in _STATISTICS_BY_STRICTNESS:
        later = _STATISTICS_BY_STRICTNESS.index(new) > _STATISTICS_BY_STRICTNESS.index(old)
        return ("strengthened" if later else "weakened"), ""
    if old == "mean" and new not in ("p50", "mean"):
        return "strengthened", "the tail counts, which a mean hides"
    return "weakened", "the statistic hides slow answers, or cannot be compared"


def _compare_golden_datasets(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    uri, other = old.golden_dataset_uri, new.golden_dataset_uri
    if uri != other:
        kind: ChangeClass = "moved"
        if uri is None or other is None:
            kind = "strengthened" if uri is None else "weakened"
        yield place.at("golden_dataset_uri").change(kind, uri, other)
    pin, now = old.golden_dataset_sha256, new.golden_dataset_sha256
    if pin != now:
        kind, note = "moved", "another dataset"
        if pin is None:
            kind, note = "strengthened", "the dataset is pinned"
        elif now is None:
            kind, note = "weakened", "the dataset can change without notice"
        yield place.at("golden_dataset_sha256").change(kind, pin, now, note)


def _compare_gates(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    if old.gate != new.gate:
        kind: ChangeClass = "weakened" if new.gate == "point" else "strengthened"
        yield place.at("gate").change(kind, old.gate, new.gate)
    for name in ("confidence", "repeats"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield place.at(name).change("weakened" if now < was else "strengthened", was, now)


def _compare_rubrics(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    before, after = _index_rubric_criteria(old, place), _index_rubric_criteria(new, place)
    for name in {**before, **after}:
        was, now = before.get(name), after.get(name)
        if was is not None and now is not None:
            yield from _compare_criteria(place.at(name), was, now)
        elif was is not None:
            note = "the criterion was removed or renamed"
            yield place.at(name).change("weakened", _dump_manifest_part(was), None, note)
        elif now is not None:
            yield place.at(name).change("strengthened", None, _dump_manifest_part(now))
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        yield place.change("other", list(before), list(after), "the order of the criteria")


def _index_rubric_criteria(
    profile: EvaluationProfile, place: _ManifestPath
) -> dict[str, SuccessCriterion]:
    found = {criterion.name: criterion for criterion in profile.grading_rubric}
    if len(found) != len(profile.grading_rubric):
        raise ConfigError("two criteria have the same name", where=f"{place.agent}: {place.path}")
    return found


def _compare_criteria(
    place: _ManifestPath, old: SuccessCriterion, new: SuccessCriterion
) -> Iterator[ManifestChange]:
    if old.strict != new.strict:
        kind: ChangeClass = "strengthened" if new.strict else "weakened"
        yield place.at("strict").change(kind, old.strict, new.strict)
    yield from _compare_thresholds(place, old, new)
    for name, note in (("metric", "measured by something else"), ("range", "another scale")):
        was, now = _dump_manifest_part(old).get(name), _dump_manifest_part(new).get(name)
        if was != now:
            yield place.at(name).change("moved", was, now, note)
    if old.description != new.description:
        judged = _is_judged(old) or _is_judged(new)
        kind, note = ("moved", "the judge grades by it") if judged else ("other", "")
        yield place.at("description").change(kind, old.description, new.description, note)


def _compare_thresholds(
    place: _ManifestPath, old: SuccessCriterion, new: SuccessCriterion
) -> Iterator[ManifestChange]:
    was, now = _get_effective_direction(old), _get_effective_direction(new)
    if was != now:
        note = "good values became bad ones"
        yield place.at("direction").change("weakened", was, now, note)
    elif old.direction != new.direction:
        note = "the default is now explicit"
        yield place.at("direction").change("other", old.direction, new.direction, note)
    if old.threshold != new.threshold:
        stronger = (new.threshold > old.threshold) == (now == "max")
        kind: ChangeClass = "strengthened" if stronger else "weakened"
        note = ""
        if stronger and (old.range != new.range or was != now):
            kind, note = "moved", "on another scale, or in another direction"
        yield place.at("threshold").change(kind, old.threshold, new.threshold, note)


def _get_effective_direction(criterion: SuccessCriterion) -> str:
    """Return the manifest's direction, else the metric's, else `max`."""
    if criterion.direction is not None:
        return criterion.direction
    metric = find_metric(criterion.metric or criterion.name)
    return "max" if metric is None else metric.direction


def _is_judged(criterion: SuccessCriterion) -> bool:
    if criterion.metric is not None:
        return criterion.metric == JUDGE_METRIC
    return find_metric(criterion.name) is None


def _compare_fields(
    place: _ManifestPath, old: dict[str, Any], new: dict[str, Any]
) -> Iterator[ManifestChange]:
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if was != now:
            yield place.at(name).change("other", was, now)


def _dump_manifest_part(
    value: Manifest | AgentDefinition | EvaluationProfile | SuccessCriterion,
) -> dict[str, Any]:
    written = value.model_dump_json(by_alias=True, exclude_defaults=True)
    found: dict[str, Any] = json.loads(written)
    return found
