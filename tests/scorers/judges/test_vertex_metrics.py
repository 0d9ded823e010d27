"""Which of Vertex's metrics a name means, and what they can say nothing about."""

import pytest

from assay.errors import ConfigError
from assay.formats.vertex import to_vertex
from assay.scorers import rubric_names
from assay.scorers.judges.vertex_metrics import parse_vertex_metrics
from make import asked, said, sample


def test_built_in_rubrics_have_a_counterpart() -> None:
    specs = {name: parse_vertex_metrics(name)[0].spec for name in rubric_names()}

    assert specs["task_success"] == "multi_turn_task_success_v1"
    assert specs["trajectory_quality"] == "multi_turn_trajectory_quality_v1"
    assert specs["tool_use_quality"] == "tool_use_quality_v1"


def test_several_names_and_versions_are_read() -> None:
    found = parse_vertex_metrics("Task_Success, safety_v3,final_response_match")

    assert [(each.name, each.spec) for each in found] == [
        ("task_success", "multi_turn_task_success_v1"),
        ("safety_v3", "safety_v3"),
        ("final_response_match", "final_response_match_v2"),
    ]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("polite.yaml", "Vertex has no rubric 'polite.yaml'"),
        ("", "Vertex has no rubric ''"),
        ("safety_v2", "safety has no version 2"),
        ("safety,safety_v1", "'safety_v1' is listed twice"),
        ((), "no metric was given"),
    ],
)
def test_what_is_no_metric_is_refused(names: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_vertex_metrics(names)


def test_a_metric_that_says_nothing_about_a_session_is_not_asked_for() -> None:
    row = to_vertex(sample(asked("2+2?"), said("4"))).value
    judged = to_vertex(sample(asked("2+2?"), said("4"), ground_truth="4")).value
    tools, match, safety = parse_vertex_metrics("tool_use_quality,final_response_match,safety")

    assert tools.find_unfit_reason(row) == "no tool was called"
    assert match.find_unfit_reason(row) == "the sample has no ground truth to compare with"
    assert match.find_unfit_reason(judged) is None
    assert safety.find_unfit_reason(row) is None
