"""Paths into JSON values."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.scorers.checks.json_paths import parse_json_path
from assay.scorers.checks.yaml_node import Node

VALUE = {"a": {"b c": [1, {"d": 2}], "e": None}, "it's": 3, "*": 4}


def found(path: str) -> list[tuple[str, Any]]:
    return parse_json_path(Node(path, "c.yaml")).find(VALUE)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", [("$", VALUE)]),
        ("$.a.e", [("$.a.e", None)]),
        ("$.a['b c'][0]", [("$.a['b c'][0]", 1)]),
        ('$["a"]["b c"][-1].d', [("$.a['b c'][1].d", 2)]),
        ("$.a['b c'][*]", [("$.a['b c'][0]", 1), ("$.a['b c'][1]", {"d": 2})]),
        ("$.a.*.x", []),
        (r"$['it\'s']", [('$["it\'s"]', 3)]),
        ("$['*']", [("$['*']", 4)]),
        ("$.none", []),
        ("$.a[0]", []),
        ("$.a['b c'][9]", []),
    ],
)
def test_a_path_leads_to_values_with_their_places(path: str, expected: list[Any]) -> None:
    assert found(path) == expected


@pytest.mark.parametrize(
    "path", ["a.b", "$a", "$..a", "$[?(@.a)]", "$.a[", "$.", "$['a]", "$[1:2]"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"^c\.yaml: "):
        found(path)
