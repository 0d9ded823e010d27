"""What a status and a `Retry-After` mean."""

import pytest

from assay.errors import AccessDenied, EndpointError
from assay.providers.attempt_errors import (
    AttemptError,
    ErrorKind,
    classify_status,
    is_context_length_error,
    parse_retry_after,
)

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, ErrorKind.REFUSED) for status in (302, 400, 404, 405, 413, 422, 501)),
        *((status, ErrorKind.DENIED) for status in (401, 403)),
        *((status, ErrorKind.OVERLOADED) for status in (408, 409, 425, 500, 502, 503, 504, 529)),
        (429, ErrorKind.THROTTLED),
    ],
)
def test_a_status_says_whether_another_attempt_can_help(status: int, kind: ErrorKind) -> None:
    assert classify_status(status) is kind
    assert AttemptError(kind, "x").permanent == (kind in (ErrorKind.REFUSED, ErrorKind.DENIED))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:47", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(
    text: str | None, seconds: float | None
) -> None:
    assert parse_retry_after(text, milliseconds=None, now=NOW) == seconds


def test_milliseconds_are_more_exact_than_seconds() -> None:
    assert parse_retry_after("2", milliseconds="1250", now=NOW) == 1.25
    assert parse_retry_after("2", milliseconds="soon", now=NOW) == 2.0


def test_the_error_says_how_often_it_was_tried_and_whether_more_could_help() -> None:
    error = AttemptError(ErrorKind.OVERLOADED, "HTTP 500: oh", 500).error(
        where="openai:m", attempts=3
    )

    assert str(error) == "openai:m: HTTP 500: oh (gave up after 3 attempts)"
    assert (type(error), error.status, error.retryable) == (EndpointError, 500, True)


def test_a_denial_is_its_own_error_and_cannot_be_retried() -> None:
    error = AttemptError(ErrorKind.DENIED, "HTTP 401: no", 401, hint="set X").error(
        where="m", attempts=1
    )

    assert isinstance(error, AccessDenied)
    assert str(error) == "m: HTTP 401: no\n  hint: set X"
    assert not error.retryable


def refused(message: str) -> EndpointError:
    return EndpointError(message, status=400, retryable=False)


@pytest.mark.parametrize(
    "message",
    [
        "400: This model's maximum context length is 8192 tokens",
        "400: context_length_exceeded",
        "400: prompt is too long: 210000 tokens > 200000 maximum",
        "400: input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000",
        "400: The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        "422: Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192.",
        "400: Input is too long for requested model.",
        "400: The input token count (1200000) exceeds the maximum number of tokens allowed",
        "llama.cpp rejected the request: the request exceeds the available context size",
        "the prompt has 300 tokens: the context length is 256",
    ],
)
def test_the_words_of_each_provider_are_known(message: str) -> None:
    assert is_context_length_error(refused(message))


@pytest.mark.parametrize(
    "error",
    [
        refused("400: no such sampling setting"),
        EndpointError("503: the context window service is down"),
        ValueError("prompt is too long"),
    ],
)
def test_anything_else_is_another_error(error: Exception) -> None:
    assert not is_context_length_error(error)
