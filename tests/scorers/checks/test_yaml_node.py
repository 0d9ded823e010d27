"""Values with their place: what is refused, and how the complaint names it."""

from collections.abc import Callable
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers.checks.yaml_node import Node


def at(value: Any) -> Node:
    place = ("checks", 2, "weight")
    return Node(value, "c.yaml", place, {place: 7})


@pytest.mark.parametrize(
    ("ask", "value", "problem"),
    [
        (Node.text, 5, "the value is 5, not text"),
        (Node.text, "", "the text is empty"),
        (Node.text, None, "the value is null, not text"),
        (Node.number, "5", "the value is '5', not a number"),
        (Node.number, True, "the value is true, not a number"),
        (Node.number, float("inf"), "inf is not a finite number"),
        (Node.whole_number, 1.5, "1.5 is not a whole number"),
        (Node.flag, 1, "the value is 1, neither true nor false"),
        (Node.mapping, [], "the value is a list, not a mapping"),
        (lambda given: list(given.items()), {}, "the value is a mapping, not a list"),
        (lambda given: list(given.items()), [], "the list is empty"),
        (Node.texts, ["a", 1], "the value is 1, not text"),
        (lambda given: given.number(lowest=0), -1, "-1 is below 0"),
    ],
)
def test_a_wrong_value_is_refused(ask: Callable[[Node], Any], value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(at(value))

    assert caught.value.message == problem
    assert str(caught.value.where).startswith("c.yaml")
    assert "checks[2].weight" in str(caught.value.where)


def test_a_right_value_is_given_back() -> None:
    assert at("a").text() == "a"
    assert at("a").texts() == ("a",)
    assert at(["a", "b"]).texts() == ("a", "b")
    assert at(2).whole_number(lowest=2) == 2
    assert at(10**400).whole_number() == 10**400
    assert at(True).flag() is True
    assert at({"a": 1}).get("b") is None


def test_a_complaint_has_file_line_and_key() -> None:
    assert str(at(5).wrong("is 5", hint="so")) == "c.yaml:7: checks[2].weight: is 5\n  hint: so"
    assert str(Node(5, "c.yaml").wrong("is 5")) == "c.yaml: is 5"


def test_an_unknown_key_suggests_the_near_miss() -> None:
    with pytest.raises(ConfigError) as caught:
        at({"at_leest": 1}).mapping(("at_least", "at_most"))

    assert caught.value.hint == "did you mean 'at_least'?"
