"""A whole call: attempts, waits, slots and what is recorded of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import Client, ClientSettings, ClientWrapper, Reply, connect
from assay.providers.attempt_errors import AttemptError, ErrorKind
from assay.providers.client import RetryBudget
from assay.providers.clock import Timing
from assay.providers.concurrency import AdaptiveLimiter
from assay.types import Endpoint, Message, ModelCall, ToolSpec
from model_server import (
    ASK,
    OK,
    Behaviour,
    ModelServer,
    ToldTime,
    answers,
    half_closes,
    hangs,
    hangs_up,
    resets_mid_body,
)


def ask(*behaviours: Behaviour, time: ToldTime, **settings: Any) -> tuple[Reply, int]:
    """One call; the reply and how many requests the server saw."""

    async def scenario() -> tuple[Reply, int]:
        async with ModelServer(*behaviours) as server:
            endpoint = server.endpoint(timeout_s=settings.pop("timeout_s", None))
            chosen = ClientSettings(**settings)
            async with connect(endpoint, chosen, timing=time.timing) as client:
                return await client.complete(ASK), len(server.asked)

    return asyncio.run(scenario())


def test_three_server_errors_then_an_answer() -> None:
    time = ToldTime()
    broken = answers({"error": "oh"}, 500)

    reply, requests = ask(broken, broken, broken, OK, time=time)

    assert reply.message.text == "Hello."
    assert reply.call.attempts == requests == 4
    assert time.slept == [0.5, 1, 2]


@pytest.mark.parametrize("behaviour", [resets_mid_body, half_closes, hangs_up, hangs])
def test_a_broken_connection_is_followed_by_another_attempt(behaviour: Behaviour) -> None:
    timeout_s = 0.1 if behaviour is hangs else 5

    reply, requests = ask(behaviour, OK, time=ToldTime(), timeout_s=timeout_s)

    # At least: on a busy machine the second answer may take too long as well.
    assert reply.call.attempts == requests >= 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_these_are_tried_again(status: int) -> None:
    reply, requests = ask(answers({}, status), OK, time=ToldTime())

    assert (reply.call.attempts, requests) == (2, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_these_are_never_tried_again(status: int) -> None:
    time = ToldTime()

    with pytest.raises(EndpointError) as caught:
        ask(answers({"error": {"message": "no"}}, status), OK, time=time)

    assert time.slept == []
    assert (caught.value.status, caught.value.retryable) == (status, False)
    assert isinstance(caught.value, AccessDenied) == (status in (401, 403))


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0)]
)
def test_retry_after_is_obeyed_in_seconds_and_as_a_date(header: str, seconds: float) -> None:
    time = ToldTime(at=784111777.0)

    reply, _ = ask(answers({}, 429, Retry_After=header), OK, time=time)

    assert reply.call.attempts == 2
    assert seconds <= sum(time.slept) < seconds + 1


def test_a_retry_after_that_is_too_long_fails_at_once() -> None:
    time = ToldTime()

    with pytest.raises(EndpointError, match=r"asks to wait 3\.6e\+03 s, but 600 s are left"):
        ask(answers({}, 429, Retry_After="3600"), OK, time=time)

    assert time.slept == []


def test_many_calls_survive_a_rate_limit_and_the_limit_is_cut_once() -> None:
    time = ToldTime()
    busy = answers({}, 429, Retry_After="5")

    async def scenario() -> None:
        async with (
            ModelServer(*[busy] * 15, OK) as server,
            connect(server.endpoint(), timing=time.timing) as client,
        ):
            replies = await asyncio.gather(*(client.complete(ASK) for _ in range(60)))
            assert len(replies) == 60
            assert sum(reply.call.attempts - 1 for reply in replies) == 15
            assert client.limiter.limit >= 10

    asyncio.run(scenario())


def test_it_gives_up_after_the_retries_and_says_what_happened_where() -> None:
    async def scenario() -> EndpointError:
        async with ModelServer(answers({"error": {"message": "on fire"}}, 503)) as server:
            endpoint = server.endpoint(max_retries=2)
            async with connect(endpoint, timing=ToldTime().timing) as client:
                with pytest.raises(EndpointError) as caught:
                    await client.complete(ASK)
            assert len(server.asked) == 3
            return caught.value

    error = asyncio.run(scenario())

    assert error.where is not None
    assert error.where.startswith("openai:m at 127.0.0.1:")
    assert error.message == "HTTP 503: on fire (gave up after 3 attempts)"
    assert error.retryable


def test_an_answer_without_choices_is_asked_for_once_more() -> None:
    with pytest.raises(EndpointError, match=r"has no choice .*gave up after 2 attempts"):
        ask(answers({"choices": []}), time=ToldTime())
    reply, _ = ask(answers({"choices": []}), OK, time=ToldTime())
    assert reply.call.attempts == 2


def test_a_fixed_limit_holds_on_the_wire() -> None:
    slow = answers({"choices": [{"message": {"content": "x"}}]}, delay_s=0.01)

    async def scenario() -> int:
        async with ModelServer(slow) as server:
            settings = ClientSettings(concurrency=3)
            async with connect(server.endpoint(), settings) as client:
                await asyncio.gather(*(client.complete(ASK) for _ in range(20)))
            return server.most_at_once

    assert asyncio.run(scenario()) == 3


def test_who_waits_for_a_retry_holds_no_slot() -> None:
    async def scenario() -> None:
        waiting, go_on = asyncio.Event(), asyncio.Event()

        async def sleep(seconds: float) -> None:
            waiting.set()
            await go_on.wait()

        timing = ToldTime().timing.__class__(sleep=sleep)
        replies = [{"error": {"status": 500}}, "second", "first"]
        endpoint = Endpoint(provider="mock", model="script", extra_params={"replies": replies})
        client = connect(endpoint, ClientSettings(concurrency=1), timing=timing)
        first = asyncio.create_task(client.complete(ASK))
        await waiting.wait()

        assert (await client.complete(ASK)).message.text == "second"
        go_on.set()
        assert (await first).message.text == "first"

    asyncio.run(scenario())


def test_a_failing_call_raises_nothing_that_quotes_the_first_failure() -> None:
    with pytest.raises(EndpointError) as caught:
        ask(answers({}, 400), time=ToldTime())

    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_endpoint_seed_is_used_where_a_call_has_none() -> None:
    async def scenario() -> list[Any]:
        async with ModelServer(OK) as server:
            async with connect(server.endpoint(seed=3)) as client:
                await client.complete(ASK)
                await client.complete(ASK, seed=0)
            return [asked.json["seed"] for asked in server.asked]

    assert asyncio.run(scenario()) == [3, 0]


def test_the_limit_adapts_unless_a_number_is_given() -> None:
    endpoint = Endpoint(provider="mock", model="echo")

    assert isinstance(connect(endpoint).limiter, AdaptiveLimiter)
    assert not isinstance(connect(endpoint, ClientSettings(concurrency=4)).limiter, AdaptiveLimiter)
    assert repr(connect(endpoint)) == "Client(mock:echo)"
    assert isinstance(connect(endpoint), Client)


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


def test_a_wrapped_client_passes_calls_checks_and_close_on() -> None:
    class Inner:
        endpoint = Endpoint(provider="mock", model="echo")
        closed = False

        async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
            raise ConfigError(f"no tools: {len(tools)}")

        async def complete(
            self,
            messages: Sequence[Message],
            *,
            tools: Sequence[ToolSpec] = (),
            seed: int | None = None,
        ) -> Reply:
            return Reply(Message(role="assistant", content=f"{len(tools)} {seed}"), ModelCall())

        async def close(self) -> None:
            self.closed = True

    async def scenario() -> tuple[str, bool]:
        inner = Inner()
        client = ClientWrapper(inner)
        assert client.endpoint is inner.endpoint
        with pytest.raises(ConfigError, match="no tools: 0"):
            await client.check_tools(())
        reply = await client.complete(ASK, seed=7)
        await client.close()
        return reply.message.text, inner.closed

    assert asyncio.run(scenario()) == ("0 7", True)
