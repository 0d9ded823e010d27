"""Paths into JSON values."""

from typing import Any

import pytest

from assay.scorers.checks.json_paths import parse_json_path
from assay.types import InvalidValue

VALUE = {"a": {"b c": [1, {"d": 2}], "e": None}, "it's": 3, "*": 4}


def found(path: str) -> list[tuple[str, Any]]:
    return parse_json_path(path).find(VALUE)


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
    "path", [5, "", "a.b", "$a", "$..a", "$[?(@.a)]", "$.a[", "$.", "$['a]", "$[1:2]"]
)
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidValue, match=r"path|does not begin with"):
        found(path)
