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

    def at(self, name: str) -> "_ManifestPath":
        return _ManifestPath(self.agent, f"{self.path}.{name}" if self.path else name)

    def compare(
        self, name: str, old: Any, new: Any, kind: ChangeClass = "other", note: str = ""
    ) -> Iterator[ManifestChange]:
        """Yield the change of the value at `name`, if it changed."""
        if old != new:
            path = self.at(name).path if name else self.path
            yield ManifestChange(
                agent=self.agent, path=path, change=kind, old=old, new=new, note=note
            )


def _choose_kind(weaker: bool) -> ChangeClass:
    return "weakened" if weaker else "strengthened"


def compare_manifests(
    old: Manifest, new: Manifest, *, agent: str | None = None
) -> tuple[ManifestChange, ...]:
    """List all changes, those that weaken the criteria first.

    Agents and criteria are matched by name: a renamed one is removed and added. Raises
    `ConfigError` when neither manifest has the `agent`.
    """
    before, after = old.select_agents(agent), new.select_agents(agent)
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
        weaker = old is not None and old.evaluation is not None
        note = "the agent and its definition of done were removed" if weaker else ""
        kind: ChangeClass = "weakened" if weaker else "other"
        yield from place.compare("agent", old and old.name, new and new.name, kind, note)
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
        note = "the agent has no criteria any more" if new is None else ""
        before, after = old and _dump_manifest_part(old), new and _dump_manifest_part(new)
        yield from place.compare("", before, after, _choose_kind(new is None), note)
        return
    limit, other = old.expected_latency_ms, new.expected_latency_ms
    # No limit is the most lenient one.
    weaker = other is None or (limit is not None and other > limit)
    yield from place.compare("expected_latency_ms", limit, other, _choose_kind(weaker))
    was, now = old.latency_statistic, new.latency_statistic
    kind, note = _classify_statistic_change(was, now)
    if limit is None:
        kind, note = "other", "the old manifest had no limit on it"
    yield from place.compare("latency_statistic", was, now, kind, note)
    yield from _compare_golden_datasets(place, old, new)
    yield from place.compare("gate", old.gate, new.gate, _choose_kind(new.gate == "point"))
    for name in ("confidence", "repeats"):
        was, now = getattr(old, name), getattr(new, name)
        yield from place.compare(name, was, now, _choose_kind(now < was))
    models = (old.evaluator_model, new.evaluator_model)
    yield from place.compare("evaluator_model", *models, "moved", "another judge")
    yield from _compare_rubrics(place.at("grading_rubric"), old, new)


def _classify_statistic_change(old: str, new: str) -> tuple[ChangeClass, str]:
    if old in _STATISTICS_BY_STRICTNESS and new in _STATISTICS_BY_STRICTNESS:
        ranks = [_STATISTICS_BY_STRICTNESS.index(each) for each in (old, new)]
        return _choose_kind(ranks[1] < ranks[0]), ""
    if old == "mean" and new not in ("p50", "mean"):
        return "strengthened", "the tail counts, which a mean hides"
    return "weakened", "the statistic hides slow answers, or cannot be compared"


def _compare_golden_datasets(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    uri, other = old.golden_dataset_uri, new.golden_dataset_uri
    one_only = uri is None or other is None
    kind: ChangeClass = _choose_kind(other is None) if one_only else "moved"
    yield from place.compare("golden_dataset_uri", uri, other, kind)
    pin, now = old.golden_dataset_sha256, new.golden_dataset_sha256
    kind, note = "moved", "another dataset"
    if pin is None:
        kind, note = "strengthened", "the dataset is pinned"
    elif now is None:
        kind, note = "weakened", "the dataset can change without notice"
    yield from place.compare("golden_dataset_sha256", pin, now, kind, note)


def _compare_rubrics(
    place: _ManifestPath, old: EvaluationProfile, new: EvaluationProfile
) -> Iterator[ManifestChange]:
    before, after = _index_rubric_criteria(old, place), _index_rubric_criteria(new, place)
    for name in {**before, **after}:
        was, now = before.get(name), after.get(name)
        if was is not None and now is not None:
            yield from _compare_criteria(place.at(name), was, now)
            continue
        note = "the criterion was removed or renamed" if now is None else ""
        parts = was and _dump_manifest_part(was), now and _dump_manifest_part(now)
        yield from place.compare(name, *parts, _choose_kind(now is None), note)
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        note = "the order of the criteria"
        yield from place.compare("", list(before), list(after), "other", note)


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
    yield from place.compare("strict", old.strict, new.strict, _choose_kind(not new.strict))
    was, now = _get_effective_direction(old), _get_effective_direction(new)
    if was != now:
        yield from place.compare("direction", was, now, "weakened", "good values became bad ones")
    else:
        note = "the default is now explicit"
        yield from place.compare("direction", old.direction, new.direction, "other", note)
    stronger = (new.threshold > old.threshold) == (now == "max")
    kind, note = _choose_kind(not stronger), ""
    if stronger and (old.range != new.range or was != now):
        kind, note = "moved", "on another scale, or in another direction"
    yield from place.compare("threshold", old.threshold, new.threshold, kind, note)
    for name, note in (("metric", "measured by something else"), ("range", "another scale")):
        values = _dump_manifest_part(old).get(name), _dump_manifest_part(new).get(name)
        yield from place.compare(name, *values, "moved", note)
    judged = _is_judged(old) or _is_judged(new)
    kind, note = ("moved", "the judge grades by it") if judged else ("other", "")
    yield from place.compare("description", old.description, new.description, kind, note)


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
        yield from place.compare(name, old.get(name), new.get(name))


def _dump_manifest_part(
    value: Manifest | AgentDefinition | EvaluationProfile | SuccessCriterion,
) -> dict[str, Any]:
    written = value.model_dump_json(by_alias=True, exclude_defaults=True)
    found: dict[str, Any] = json.loads(written)
    return found
