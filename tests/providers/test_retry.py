"""How often, after how long, and when no more."""

import pytest

from assay.errors import AccessDenied, EndpointError
from assay.providers.attempt_errors import AttemptError, ErrorKind
from assay.providers.clock import Timing
from assay.providers.retry import RetryBudget

BROKEN = AttemptError(ErrorKind.OVERLOADED, "HTTP 500: oh", 500)


def retry_budget(*, retries: int = 5, wait_s: float = 600.0, chance: float = 1.0) -> RetryBudget:
    timing = Timing(chance=lambda: chance)
    return RetryBudget(max_retries=retries, max_wait_s=wait_s, where="openai:m", timing=timing)


def waits(patient: RetryBudget, fault: AttemptError, times: int) -> list[float]:
    return [patient.wait_s(fault, attempts=number) for number in range(1, times + 1)]


def test_waits_double_up_to_a_minute() -> None:
    expected = [0.5, 1, 2, 4, 8, 16, 32, 60, 60]

    assert waits(retry_budget(retries=9), BROKEN, 9) == expected


def test_chance_spreads_the_waits_over_their_whole_length() -> None:
    assert waits(retry_budget(chance=0.0), BROKEN, 3) == [0, 0, 0]
    assert waits(retry_budget(chance=0.5), BROKEN, 3) == [0.25, 0.5, 1]


def test_retries_are_counted() -> None:
    patient = retry_budget(retries=2)
    waits(patient, BROKEN, 2)

    with pytest.raises(EndpointError, match=r"gave up after 3 attempts") as caught:
        patient.wait_s(BROKEN, attempts=3)

    assert caught.value.status == 500
    assert caught.value.retryable


@pytest.mark.parametrize("kind", [ErrorKind.REFUSED, ErrorKind.DENIED])
def test_what_cannot_succeed_is_not_tried_again(kind: ErrorKind) -> None:
    with pytest.raises(EndpointError) as caught:
        retry_budget().wait_s(AttemptError(kind, "HTTP 4xx", 400), attempts=1)

    assert not caught.value.retryable
    assert isinstance(caught.value, AccessDenied) == (kind is ErrorKind.DENIED)


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_what_the_server_asks_for_is_never_cut_short(chance: float) -> None:
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=7.0)

    assert all(wait >= 7.0 for wait in waits(retry_budget(chance=chance), asked, 5))


def test_a_rate_limit_with_a_date_uses_up_time_not_retries() -> None:
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=10.0)
    patient = retry_budget(retries=1, wait_s=100, chance=0.0)

    assert waits(patient, asked, 10) == [10.0] * 10
    with pytest.raises(EndpointError, match="asks to wait 10 s, but 0 s are left of the 100 s"):
        patient.wait_s(asked, attempts=11)


def test_a_rate_limit_without_a_date_uses_up_retries() -> None:
    patient = retry_budget(retries=1)
    vague = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429)
    patient.wait_s(vague, attempts=1)

    with pytest.raises(EndpointError):
        patient.wait_s(vague, attempts=2)


def test_a_wait_longer_than_the_time_left_fails_at_once() -> None:
    tomorrow = AttemptError(ErrorKind.THROTTLED, "HTTP 429: quota", 429, retry_after_s=86400.0)

    with pytest.raises(EndpointError, match=r"asks to wait 8.64e\+04 s, but 600 s are left"):
        retry_budget().wait_s(tomorrow, attempts=1)


def test_a_wait_that_just_fits_is_not_made_too_long_by_chance() -> None:
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=599.95)

    assert retry_budget().wait_s(asked, attempts=1) == 600


def test_backoff_ends_with_the_time_for_it() -> None:
    patient = retry_budget(retries=50, wait_s=3)
    waits(patient, BROKEN, 2)

    with pytest.raises(EndpointError, match=r"only 1\.5 s are left of the 3 s wait limit"):
        patient.wait_s(BROKEN, attempts=3)


def test_a_garbled_answer_gets_one_more_chance() -> None:
    patient, garbled = retry_budget(), AttemptError(ErrorKind.GARBLED, "not JSON", 200)
    patient.wait_s(garbled, attempts=1)

    with pytest.raises(EndpointError, match="not JSON"):
        patient.wait_s(garbled, attempts=2)


def test_no_retries_means_none_for_any_reason() -> None:
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=1.0)

    for fault in (asked, BROKEN, AttemptError(ErrorKind.GARBLED, "not JSON")):
        with pytest.raises(EndpointError):
            retry_budget(retries=0).wait_s(fault, attempts=1)


def test_a_server_may_ask_to_wait_thousands_of_times() -> None:
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=0.0)

    assert waits(retry_budget(chance=0.0), asked, 2000) == [0.0] * 2000
