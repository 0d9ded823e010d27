"""Conditions on one JSON value."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers.checks.check_entry import CheckModel
from assay.scorers.checks.conditions import ConditionOrValue, is_equal_json, quote_json
from assay.types import YamlDocument, validate_document


class Holder(CheckModel):
    it: ConditionOrValue


def problem(condition: Any, value: Any) -> str | None:
    return validate_document(YamlDocument({"it": condition}, "c.yaml"), Holder).it.problem(value)


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        ("ls", "ls", "ls -l"),
        (3, 3.0, True),
        (None, None, 0),
        ({"equals": [1, {"a": True}]}, [1.0, {"a": True}], [1, {"a": 1}]),
        ({"contains": "rm"}, "a rm", "a"),
        ({"contains": "rm"}, "a rm", ["rm"]),
        ({"matches": "^ls"}, "ls -l", "als"),
        ({"not_matches": "^rm"}, "ls", "rm x"),
        ({"at_least": 2}, 2, 1.9),
        ({"at_most": 2}, 10**400 * -1, 10**400),
        ({"above": 2, "below": 3}, 2.5, 3),
        ({"at_least": 2}, 2, "2"),
        ({"at_least": 0}, 2, float("nan")),
        ({"at_least": 0}, 2, True),
    ],
)
def test_a_condition_says_yes_and_no(condition: Any, good: Any, bad: Any) -> None:
    assert problem(condition, good) is None
    assert problem(condition, bad) is not None


def test_a_problem_quotes_the_value() -> None:
    assert problem({"at_least": 2}, 1) == "1 is below 2"
    assert problem("ls", "rm") == "is 'rm', not 'ls'"
    assert len(quote_json("x" * 1000)) < 130


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ({}, "the condition is empty"),
        ({"matchs": "a"}, "did you mean 'matches'?"),
        ({"at_least": "2"}, "not a number"),
        ({"matches": "("}, "not a valid RE2 pattern"),
    ],
)
def test_a_wrong_condition_is_refused(condition: Any, refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        problem(condition, 1)

    assert refused in str(caught.value)


def test_true_is_not_one_at_any_depth() -> None:
    assert is_equal_json({"a": [1]}, {"a": [1.0]})
    assert not is_equal_json({"a": [1]}, {"a": [True]})
    assert not is_equal_json([1], [1, 2])
    assert not is_equal_json({"a": 1}, {"b": 1})
