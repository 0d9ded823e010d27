"""Checks look into the sessions of subagents, unless their scope says otherwise."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.formats import from_eval_record, to_eval_record
from assay.scorers import checks_from
from assay.types import ModelCall, Sample, Usage
from check_files import judged, verdict
from make import answered, asked, called, said, sample

FINE: dict[str, Any] = {"failed": False}


def answer(text: str, call_id: str, **details: Any) -> Any:
    return answered(text, call_id).model_copy(update={"details": {**FINE, **details}})


def child(name: str = "ses_child", **metadata: Any) -> Sample:
    """A subagent that runs `bash`, which fails, and says a secret."""
    made = sample(
        asked("Find it"),
        said("token=s3cret", called("bash", "b1", command="rm -rf /")),
        answer("denied", "b1", failed=True, is_error=True),
        said("not found"),
        id=name,
        metadata=metadata,
    )
    assert made.trajectory is not None
    made.trajectory.calls.append(ModelCall(usage=Usage(input_tokens=90, output_tokens=10)))
    return made


def parent(*children: Sample, linked: str = "ses_child") -> Sample:
    """Two turns; the second starts a subagent between a `read` and an `edit`."""
    made = sample(
        asked("Hello"),
        said("Hello."),
        asked("Look for it"),
        said(None, called("read", "r1"), called("task", "t1"), called("edit", "e1")),
        answer("text", "r1"),
        answer("not found", "t1", subagent=linked),
        answer("done", "e1"),
        said("It is nowhere."),
        metadata={"subagents": [each.to_dict() for each in children]},
    )
    assert made.trajectory is not None
    made.trajectory.calls.append(ModelCall(usage=Usage(input_tokens=5, output_tokens=5)))
    return made


@pytest.mark.parametrize(
    ("check", "everybody", "main", "subagents"),
    [
        ({"tool_not_called": "bash"}, False, True, False),
        ({"tool_called": "bash"}, True, False, True),
        ({"tool_called": "edit"}, True, True, False),
        ({"max_tools": 3}, False, True, True),
        ({"no_tool_errors": True}, False, True, False),
        ({"tool_order": ["task", "bash", "edit"]}, True, False, False),
        ({"tool_args_match": {"tool": "bash", "args": {"command": "rm -rf /"}}}, True, False, True),
        ({"target": "tool.args", "not_matches": "rm -rf"}, False, True, False),
        ({"target": "tool.error", "contains": "denied"}, True, False, True),
        ({"target": "response_concat", "not_contains": "s3cret"}, False, True, False),
        ({"max_tokens": 50}, False, True, False),
    ],
)
def test_a_check_reads_subagents_too_unless_its_scope_is_the_main_agent(
    check: dict[str, Any], everybody: bool, main: bool, subagents: bool
) -> None:
    given = parent(child())

    assert verdict(check, given) is everybody
    assert verdict({**check, "scope": "all"}, given) is everybody
    assert verdict({**check, "scope": "main"}, given) is main
    assert verdict({**check, "scope": "subagents"}, given) is subagents


def test_the_response_is_the_main_agents_unless_the_scope_says_otherwise() -> None:
    given = parent(child())

    assert verdict({"equals": "It is nowhere."}, given) is True
    assert verdict({"equals": "not found"}, given) is False
    assert verdict({"equals": "not found", "scope": "subagents"}, given) is True


def test_a_reason_names_the_subagent_and_its_turn() -> None:
    metric = judged({"tool_not_called": "bash"}, parent(child()))

    assert metric.reason == (
        "turn 2 of subagent 'ses_child' calls 'bash' with '{\"command\":\"rm -rf /\"}'"
    )
    text = judged({"target": "response_concat", "not_contains": "s3cret"}, parent(child()))
    assert text.reason is not None
    assert "in turn 2 of subagent 'ses_child'" in text.reason


def test_what_a_subagent_did_belongs_to_the_turn_that_started_it() -> None:
    given = parent(child())

    assert verdict({"tool_not_called": "bash", "turn": 4}, given) is False
    assert verdict({"tool_not_called": "bash", "turn": 2}, given) is True
    quiet = {"target": "response_concat", "not_contains": "s3cret"}
    assert verdict({**quiet, "turn": 4}, given) is False
    assert verdict({**quiet, "turn": 2}, given) is True


def test_a_subagent_that_no_call_started_is_read_last() -> None:
    given = parent(child(), linked="another")

    assert verdict({"tool_not_called": "bash"}, given) is False
    assert verdict({"tool_order": ["edit", "bash"]}, given) is True
    assert verdict({"tool_not_called": "bash", "turn": 4}, given) is True


def test_subagents_of_subagents_are_read() -> None:
    middle = sample(
        asked("Delegate"),
        said(None, called("task", "t2")),
        answer("ok", "t2", subagent="ses_child"),
        said("ok"),
        id="ses_middle",
        metadata={"subagents": [child().to_dict()]},
    )
    given = parent(middle, linked="ses_middle")

    metric = judged({"tool_not_called": "bash"}, given)

    assert metric.score == 0.0
    assert metric.reason is not None
    assert "of subagent 'ses_child'" in metric.reason
    assert verdict({"tool_not_called": "bash", "turn": 4}, given) is False
    assert verdict({"tool_order": ["task", "task", "bash", "edit"]}, given) is True


def test_a_damaged_subagent_is_not_judged_where_it_would_be_read() -> None:
    given = parent()
    given.metadata["subagents"] = [{"id": "x", "trajectory": {"messages": 5}}]

    metric = judged({"tool_not_called": "bash"}, given)

    assert metric.score is None
    assert metric.reason is not None
    assert "metadata.subagents[0] cannot be read" in metric.reason
    assert verdict({"tool_not_called": "bash", "scope": "main"}, given) is True


def test_a_subagent_of_which_only_the_id_is_recorded_is_not_judged() -> None:
    given = parent()
    given.metadata["subagents"] = [{"id": "ses_child", "title": "Find it"}]

    metric = judged({"tool_not_called": "bash"}, given)

    assert metric.score is None
    assert metric.reason == "the session of subagent 'ses_child' is not recorded"


def test_checks_of_an_evaluation_record_look_into_its_subagents() -> None:
    given = from_eval_record(to_eval_record(parent(child())).value)

    metric = judged({"tool_not_called": "bash"}, given)

    assert metric.score == 0.0
    assert metric.reason is not None
    assert "turn 2 of subagent 'ses_child' calls 'bash'" in metric.reason


def test_subagents_nested_without_end_are_not_judged() -> None:
    inner = child("ses_0")
    for level in range(1, 12):
        inner = child(f"ses_{level}", subagents=[inner.to_dict()])

    metric = judged({"tool_not_called": "nothing"}, parent(inner))

    assert metric.score is None
    assert metric.reason == "subagents are nested more than 8 deep"


def test_other_data_under_the_key_is_passed_over() -> None:
    given = parent()
    given.metadata["subagents"] = ["explore", {"name": "plan"}, 3]

    assert verdict({"tool_not_called": "bash"}, given) is True


def test_an_unknown_scope_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="'everyone' is not 'all', 'main' or 'subagents'"):
        checks_from({"checks": [{"tool_called": "bash", "scope": "everyone"}]})
    with pytest.raises(ConfigError, match="`scope` is not allowed with `max_turns`"):
        checks_from({"checks": [{"max_turns": 3, "scope": "main"}]})
