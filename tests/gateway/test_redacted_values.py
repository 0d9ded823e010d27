"""`redact_values`: no secret in any string, wherever it is."""

from typing import Any

import pytest

from assay.gateway.redacted_values import redact_values

KEY = "sk-canary0123456789abcdef01"


@pytest.mark.parametrize("before", ["", "line\n", "tab\t", '"', "\n\x1e\n"])
def test_a_key_is_redacted_after_any_character(before: str) -> None:
    given = {"role": "tool", "content": [{"text": f"{before}{KEY}\nend"}, 7, None]}

    assert redact_values(given) == {
        "role": "tool",
        "content": [{"text": f"{before}[redacted]\nend"}, 7, None],
    }


def test_a_variable_of_the_environment_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_SERVICE_TOKEN", 'quoted"canary-value')

    assert redact_values(['a "quoted"canary-value"', {'quoted"canary-value': 1}]) == [
        'a "[redacted]"',
        {"[redacted]": 1},
    ]


def test_a_key_in_parts_does_not_take_other_strings_with_it() -> None:
    start, end = "-----BEGIN PRIVATE KEY-----\nabc", "def\n-----END PRIVATE KEY-----"

    first, between, last = redact_values([start, "between", end])

    assert between == "between"
    assert "BEGIN" not in first
    assert last == end


@pytest.mark.parametrize("value", [None, 3, "plain", [], {}, {"a": [1.5, {"b": True}]}])
def test_everything_else_stays(value: Any) -> None:
    assert redact_values(value) == value
