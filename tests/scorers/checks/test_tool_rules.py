"""Rules about tools: each says yes and no."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.types import Sample, ToolCall
from check_files import judged, session, verdict
from make import answered, asked, called, said, sample

NO_TOOLS = sample(asked("q"), said("a"))


@pytest.mark.parametrize(
    ("check", "expected", "reason"),
    [
        ({"tool_called": "edit"}, True, "'edit' was called once, in turn 2"),
        ({"tool_called": ["read", "edit"]}, True, "2 times, first in turn 2; 'edit' was"),
        ({"tool_called": "bash"}, False, "tools called: 'read', 'read', 'edit'"),
        ({"tool_called": {"tool": "read", "at_least": 3}}, False, "at least 3 wanted"),
        ({"tool_called": {"tool": "read", "at_most": 1}}, False, "at most 1 wanted"),
        ({"tool_called": "read", "turn": 4}, False, "no tool was called"),
        ({"tool_not_called": "bash"}, True, "3 calls, none to these tools"),
        ({"tool_not_called": ["bash", "edit"]}, False, "turn 2 calls 'edit' with"),
        ({"tool_order": ["read", "edit"]}, True, "'read' in turn 2, 'edit' in turn 2"),
        ({"tool_order": ["edit", "read"]}, False, "no call of 'read' after 'edit' in turn 2"),
        ({"tool_order": ["bash"]}, False, "no call of 'bash'; tools called:"),
        ({"tool_order": {"tools": ["read", "read", "edit"], "exact": True}}, True, "exactly"),
        ({"tool_order": {"tools": ["read", "edit"], "exact": True}}, False, "not exactly"),
        ({"max_tools": 3}, True, "3 calls, at most 3 allowed"),
        ({"max_tools": 2}, False, "number 3 is 'edit' in turn 2"),
        ({"max_tools": 1, "tool": "edit"}, True, "1 call, at most 1"),
        ({"max_tools": 0, "turn": 4}, True, "0 calls"),
        ({"no_tool_errors": True}, False, "'edit' in turn 2 failed: 'no such line'"),
        ({"no_tool_errors": True, "tool": "read"}, True, "2 calls, none failed"),
    ],
)
def test_a_rule_says_yes_and_no(check: dict[str, Any], expected: bool, reason: str) -> None:
    metric = judged(check)

    assert metric.score == float(expected)
    assert reason in str(metric.reason)


@pytest.mark.parametrize(
    ("args", "of", "expected"),
    [
        ({"path": "notes.txt"}, "any", True),
        ({"path": "notes.txt"}, "every", False),
        ({"path": {"matches": "[.]"}}, "every", True),
        ({"path": "notes.txt", "limit": {"at_most": 10}}, "any", True),
        ({"path": "src/a.py", "limit": 10}, "any", False),
        ({"$.path": {"contains": "src"}}, "any", True),
        ({"offset": 1}, "any", False),
    ],
)
def test_arguments_are_held_to_conditions(args: dict[str, Any], of: str, expected: bool) -> None:
    assert verdict({"tool_args_match": {"tool": "read", "args": args, "of": of}}) is expected


def test_arguments_that_are_missing_or_broken_do_not_match() -> None:
    broken = sample(asked("q"), said(None, ToolCall(name="read", raw_arguments="{path")))
    check = {"tool_args_match": {"tool": "read", "args": {"path": {"matches": "."}}}}

    assert "its arguments are not a JSON object" in str(judged(check, broken).reason)
    assert judged(check, NO_TOOLS).reason == "no call of 'read'; no tool was called"


def test_a_hostile_argument_does_not_hang() -> None:
    given = sample(asked("q"), said(None, called("bash", command="a" * 50 + "!")))
    check = {"tool_args_match": {"tool": "bash", "args": {"command": {"matches": "(a+)+$"}}}}

    assert verdict(check, given) is False


def test_tools_that_do_not_say_whether_they_failed_are_not_judged() -> None:
    given = sample(asked("q"), said(None, called("read")), answered("Error: none"), said("a"))

    assert "the first 'read' in turn 2" in str(judged({"no_tool_errors": True}, given).reason)
    assert verdict({"no_tool_errors": True}, given) is None
    assert verdict({"no_tool_errors": {"unmarked": "pass"}}, given) is True
    assert verdict({"no_tool_errors": True}, NO_TOOLS) is True


@pytest.mark.parametrize(
    "check",
    [
        {"tool_called": "read"},
        {"tool_not_called": "read"},
        {"tool_order": ["read"]},
        {"tool_args_match": {"tool": "read", "args": {"a": 1}}},
        {"max_tools": 1},
        {"no_tool_errors": True},
    ],
)
def test_a_question_that_was_not_answered_is_not_judged(check: dict[str, Any]) -> None:
    assert verdict(check, Sample(prompt="q")) is None


@pytest.mark.parametrize(
    ("check", "refused"),
    [
        ({"tool_called": {"at_least": 1}}, "tool_called.tool: the field is missing"),
        (
            {"tool_called": {"tool": "a", "at_least": 0}},
            "tool_called.at_least: the value is 0: Input should be greater than or equal to 1",
        ),
        ({"tool_called": {"tool": "a", "at_least": 3, "at_most": 2}}, "2 is below 3"),
        ({"tool_called": 5}, "the value is 5, not text"),
        ({"tool_order": []}, "the list is empty"),
        ({"tool_order": {"exact": True}}, "tool_order.tools: the field is missing"),
        ({"tool_args_match": {"tool": "a"}}, "tool_args_match.args: the field is missing"),
        (
            {"tool_args_match": {"tool": "a", "args": {}}},
            "tool_args_match.args: the mapping is empty",
        ),
        ({"tool_args_match": {"tool": "a", "args": {"$[": 1}}}, "is not a valid path"),
        (
            {"max_tools": -1},
            "max_tools: the value is -1: Input should be greater than or equal to 0",
        ),
        ({"no_tool_errors": False}, "the value is false, which checks nothing"),
        ({"no_tool_errors": {"unmarked": "ok"}}, "'ok' is not 'pass' or 'not_judged'"),
        ({"tool_called": "a", "tool": "b"}, "`tool` is not allowed with `tool_called`"),
    ],
)
def test_a_wrong_rule_is_refused(check: dict[str, Any], refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        judged(check, session())

    assert refused in str(caught.value)
