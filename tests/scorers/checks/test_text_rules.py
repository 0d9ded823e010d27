"""Rules about texts: each says yes and no, with a reason that points into the conversation."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.types import Sample, ToolCall
from check_files import judged, session, verdict
from make import asked, said, sample

RULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"matches": r"\d errors"}, {"matches": "none"}),
    ({"not_matches": "none"}, {"not_matches": r"\d errors"}),
    ({"contains": ["errors", "quite"]}, {"contains": ["errors", "none"]}),
    ({"not_contains": "none"}, {"not_contains": ["none", "errors"]}),
    ({"equals": "Not quite: 3 errors remain."}, {"equals": "Not quite"}),
    ({"target": "tool.output", "json_path": "$.lines", "of": "any"}, {"json_path": "$.lines"}),
    (
        {"target": "tool.args", "json_path": {"path": "$.path", "matches": r"\.(txt|py)$"}},
        {"target": "tool.args", "json_path": {"path": "$.path", "equals": "x"}},
    ),
    (
        {"target": "tool.args", "json_schema": {"required": ["path"]}},
        {"target": "tool.args", "json_schema": {"required": ["limit"]}},
    ),
    (
        {"number": {"pattern": r"(\d+) errors", "at_least": 3, "at_most": 3}},
        {"number": {"pattern": r"(\d+) errors", "above": 3}},
    ),
    (
        {"target": "tool.output", "number": {"path": "$.lines", "below": 3}, "of": "any"},
        {"target": "tool.output", "number": {"path": "$.lines", "below": 3}, "of": "every"},
    ),
    ({"target": "tool.args", "equals": {"path": "notes.txt"}}, {"equals": {"path": "x"}}),
]


@pytest.mark.parametrize(("good", "bad"), RULES, ids=[next(iter(good)) for good, _ in RULES])
def test_a_rule_says_yes_and_no(good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert verdict(good) is True
    assert verdict(bad) is False


def test_a_reason_names_the_turn_and_an_excerpt() -> None:
    found = judged({"target": "response_concat", "matches": "fixed"})
    missed = judged({"target": "tool.error", "not_contains": "such"})

    assert found.reason == (
        "response_concat in turn 2: match in "
        "'I look first.\\n\\nIt is fixed.\\n\\nNot quite: 3 errors remain.'"
    )
    assert missed.reason == "error of 'edit' in turn 2: 'such' in 'no such line'"


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({"matches": "read"}, True),
        ({"matches": "read", "of": "every"}, False),
        ({"matches": "read|edit", "of": "every"}, True),
        ({"not_matches": "edit"}, False),
        ({"not_matches": "edit", "of": "any"}, True),
    ],
)
def test_one_passage_or_every_one_must_pass(check: dict[str, Any], expected: bool) -> None:
    assert verdict({"target": "tool.name", **check}) is expected


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({"matches": "x"}, False),
        ({"json_schema": {}}, False),
        ({"not_matches": "x"}, True),
        ({"not_contains": "x"}, True),
        ({"not_matches": "x", "absent": "fail"}, False),
        ({"json_schema": {}, "absent": "pass"}, True),
    ],
)
def test_what_is_not_there_passes_only_a_denial(check: dict[str, Any], expected: bool) -> None:
    metric = judged({"target": "tool.output", "tool": "bash", **check})

    assert metric.score == float(expected)
    assert metric.reason == "there is no `tool.output` of 'bash'"


def test_reasoning_that_is_not_recorded_is_not_judged() -> None:
    assert verdict({"target": "reasoning", "matches": "x"}) is None
    assert verdict({"target": "reasoning", "not_matches": "x"}) is None
    assert verdict({"target": "reasoning", "not_matches": "x", "absent": "pass"}) is True


def test_a_question_that_was_not_answered_is_not_judged() -> None:
    question = Sample(prompt="2+2?")

    assert verdict({"not_matches": "x"}, question) is None
    assert verdict({"target": "tool.name", "not_matches": "x"}, question) is None
    assert verdict({"target": "prompt", "not_matches": "x"}, question) is True


def test_arguments_that_are_not_json_do_not_fit_a_schema() -> None:
    broken = ToolCall(name="read", raw_arguments="{path")
    given = sample(asked("q"), said("a", broken))

    metric = judged({"target": "tool.args", "json_schema": {}}, given)

    assert metric.reason == "the text is not JSON: arguments of 'read' in turn 2: '{path'"


def test_a_schema_that_never_ends_is_not_judged() -> None:
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}

    assert verdict({"target": "tool.args", "json_schema": endless}) is None


@pytest.mark.parametrize("text", ["many", "", "nan", "1e999", "9" * 200])
def test_a_text_without_a_number_fails_a_comparison(text: str) -> None:
    assert verdict({"number": {"at_least": 0}}, sample(asked("q"), said(text))) is False


@pytest.mark.parametrize(
    ("check", "refused"),
    [
        ({"number": {}}, "the check has no bound"),
        ({"number": {"at_least": 1, "pattern": "a", "path": "$"}}, "both `pattern` and `path`"),
        ({"json_path": {"equals": 1}}, "json_path.path: the field is missing"),
        ({"json_path": "a"}, "does not begin with `$`"),
        ({"equals": None}, "equals: the value is null"),
        ({"matches": "a", "of": "all"}, "'all' is not 'any' or 'every'"),
        ({"matches": "a", "absent": "skip"}, "'skip' is not 'pass' or 'fail'"),
        ({"contains": []}, "the list is empty"),
    ],
)
def test_a_wrong_rule_is_refused(check: dict[str, Any], refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        judged(check, session())

    assert refused in str(caught.value)
