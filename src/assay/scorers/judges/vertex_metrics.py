"""The metrics of Vertex's evaluation service, and the sessions that they apply to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError

# The first version of each metric is served in every region, later ones are not.
_METRIC_VERSIONS: Mapping[str, tuple[int, ...]] = {
    "general_quality": (1, 2),
    "text_quality": (1, 2),
    "instruction_following": (1, 2),
    "grounding": (1, 2),
    "safety": (1, 3),
    "hallucination": (1, 2),
    "final_response_match": (2, 3),
    "final_response_quality": (1, 2),
    "final_response_reference_free": (1, 2),
    "tool_use_quality": (1, 2),
    "multi_turn_general_quality": (1, 2),
    "multi_turn_text_quality": (1, 2),
    "multi_turn_tool_use_quality": (1,),
    "multi_turn_trajectory_quality": (1,),
    "multi_turn_task_success": (1,),
}

# Built-in rubrics under Vertex's names for the same purpose; the others have the same name.
_BUILT_IN = {
    "task_success": "multi_turn_task_success",
    "trajectory_quality": "multi_turn_trajectory_quality",
}


@dataclass(frozen=True)
class VertexMetric:
    """A requested metric."""

    name: str
    """The name as requested; the name of the metric in the result."""

    spec: str
    """The name of the service, with the version."""

    def find_unfit_reason(self, row: Mapping[str, Any]) -> str | None:
        """Return the reason why this metric does not apply to a row, or None."""
        # A call about such a row would be paid for without a meaningful score.
        if "tool_use_quality" in self.spec and not row["metadata"]["total_tools"]:
            return "no tool was called"
        if "final_response_match" in self.spec and not row["reference"]:
            return "the sample has no ground truth to compare with"
        return None


def parse_vertex_metrics(names: str | Sequence[str]) -> tuple[VertexMetric, ...]:
    """Parse metric names, also comma-separated: `task_success,safety_v3`. Raises `ConfigError`."""
    listed = names.split(",") if isinstance(names, str) else names
    metrics = tuple(_parse_vertex_metric(each.strip().lower()) for each in listed)
    if not metrics:
        raise ConfigError("no metric was given", where="vertex_judge()")
    specs = [each.spec for each in metrics]
    for each in metrics:
        if specs.count(each.spec) > 1:
            raise ConfigError(f"{each.spec!r} is listed twice", where="vertex_judge()")
    return metrics


def _parse_vertex_metric(name: str) -> VertexMetric:
    versioned = re.fullmatch(r"(.+)_v(\d+)", name)
    base, version = (versioned[1], int(versioned[2])) if versioned else (name, None)
    base = _BUILT_IN.get(base, base)
    known = _METRIC_VERSIONS.get(base)
    if known is None:
        raise ConfigError(
            f"Vertex has no rubric {name!r}",
            where="vertex_judge()",
            hint=f"its rubrics are: {', '.join([*_BUILT_IN, *_METRIC_VERSIONS])}; append a "
            "version as in general_quality_v2",
        )
    if version is not None and version not in known:
        listed = ", ".join(f"v{each}" for each in known)
        raise ConfigError(
            f"{base} has no version {version}",
            where="vertex_judge()",
            hint=f"available versions: {listed}",
        )
    return VertexMetric(name, f"{base}_v{version or known[0]}")
