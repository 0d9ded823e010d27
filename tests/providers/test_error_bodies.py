"""The bodies of failed requests: what they contain beside their message."""

import json
from typing import Any

import pytest

from assay.providers.error_bodies import ErrorBody, parse_error_body

QUOTA = {
    "code": 429,
    "message": "You exceeded your current quota.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"},
    ],
}


def parse(value: Any) -> ErrorBody:
    return parse_error_body(json.dumps(value).encode())


@pytest.mark.parametrize("wrapped", [{"error": QUOTA}, [{"error": QUOTA}]])
def test_the_wait_that_google_asks_for_is_in_the_body(wrapped: Any) -> None:
    body = parse(wrapped)

    assert body.text == "RESOURCE_EXHAUSTED: You exceeded your current quota."
    assert body.retry_after_s == 34.07
    assert not body.refuses_key


@pytest.mark.parametrize("delay", ["soon", "-3s", "1e9s", None, 5, "9" * 20 + "s", ["3s"]])
def test_an_invalid_wait_is_unknown(delay: Any) -> None:
    assert parse({"error": {"message": "x", "details": [{"retryDelay": delay}]}}) == ErrorBody("x")


def test_a_wrong_key_of_google_is_recognised_by_its_reason() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    error = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}

    assert parse({"error": {**error, "details": details}}).refuses_key
    assert not parse({"error": error}).refuses_key


def test_the_categories_of_azures_content_filter_are_named() -> None:
    result = {
        "hate": {"filtered": True, "severity": "high"},
        "jailbreak": {"filtered": False, "detected": False},
        "violence": {"filtered": True, "severity": "medium"},
    }
    body = parse(
        {
            "error": {
                "message": "The response was filtered.",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {
                    "code": "ResponsibleAIPolicyViolation",
                    "content_filter_result": result,
                },
            }
        }
    )

    assert body.is_filtered
    assert body.text == ("content_filter: The response was filtered. (filtered: hate, violence)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"error": {"code": "429", "message": "Slow down."}}, "Slow down."),
        ({"error": {"code": 1234, "message": "Odd."}}, "1234: Odd."),
        ({"message": "Too many tokens."}, "Too many tokens."),
        ({"Message": "User is not authorized."}, "User is not authorized."),
        ({"error": {"details": [3, None], "innererror": {"content_filter_result": 3}}}, None),
        ([1, 2], "[1,2]"),
        ("plain", "plain"),
    ],
)
def test_any_shape_has_a_text(value: Any, text: str | None) -> None:
    body = parse(value)

    assert body.text == text if text else body.text
    assert (body.retry_after_s, body.refuses_key, body.is_filtered) == (None, False, False)
