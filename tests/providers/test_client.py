"""A whole call: attempts, waits, slots and what is recorded of them."""

import asyncio
from typing import Any

import pytest

from assay.errors import AccessDenied, EndpointError
from assay.providers import Client, ClientSettings, Reply, connect
from assay.providers.concurrency import AdaptiveLimiter
from assay.types import Endpoint
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
