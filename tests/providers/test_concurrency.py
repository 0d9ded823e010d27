"""Slots: fair, never lost, and as many as the server bears."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.providers.attempt_errors import AttemptError, ErrorKind
from assay.providers.concurrency import AdaptiveLimiter, Limiter, LimitShare
from model_server import ToldTime

THROTTLED = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429)
BROKEN = AttemptError(ErrorKind.OVERLOADED, "HTTP 500", 500)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_fixed_limit_holds() -> None:
    async def scenario() -> None:
        limiter = Limiter(2)
        assert limiter.try_acquire()
        assert limiter.try_acquire()
        assert not limiter.try_acquire()
        limiter.record_success(0.1)
        limiter.record_failure(THROTTLED)
        assert limiter.limit == 2

    asyncio.run(scenario())


def test_slots_go_to_those_who_waited_longest() -> None:
    async def scenario() -> list[int]:
        limiter, order = Limiter(1), list[int]()

        async def work(number: int) -> None:
            await limiter.acquire()
            order.append(number)
            await asyncio.sleep(0)
            limiter.release()

        await asyncio.gather(*(work(number) for number in range(20)))
        assert limiter.in_flight == 0
        return order

    assert asyncio.run(scenario()) == list(range(20))


def test_nobody_overtakes_those_who_wait() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiting = asyncio.create_task(limiter.acquire())
        await settle()
        limiter.release()

        assert not limiter.try_acquire()
        await waiting

    asyncio.run(scenario())


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        limiter.release()

        await second
        assert first.cancelled()
        assert limiter.in_flight == 1

    asyncio.run(scenario())


def test_waiters_cancelled_while_a_slot_comes_free_just_leave() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
        await settle()
        for task in waiting:
            task.cancel()
        limiter.release()

        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [asyncio.CancelledError] * 3
        assert limiter.in_flight == 0

    asyncio.run(scenario())


def test_a_slot_given_in_the_moment_of_cancellation_is_passed_on() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
        await settle()
        limiter.release()
        first.cancel()

        await second
        await asyncio.wait([first])
        assert first.cancelled()
        assert limiter.in_flight == 1

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40), st.integers(1, 4))
def test_no_slot_is_ever_lost(events: list[tuple[int, bool]], limit: int) -> None:
    async def scenario() -> None:
        limiter = Limiter(limit)

        async def work() -> None:
            await limiter.acquire()
            try:
                assert limiter.in_flight <= limit
                await asyncio.sleep(0)
            finally:
                limiter.release()

        tasks = [asyncio.create_task(work()) for _ in range(10)]
        for index, yields in events:
            if yields:
                await asyncio.sleep(0)
            else:
                tasks[index].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each is None or type(each) is asyncio.CancelledError for each in outcomes)
        assert limiter.in_flight == 0
        assert limiter.try_acquire()

    asyncio.run(scenario())


def fill(limiter: AdaptiveLimiter) -> None:
    while limiter.try_acquire():
        pass


def answer(limiter: AdaptiveLimiter, times: int, latency_s: float = 1.0) -> None:
    """Answers that come while the limit is full."""
    for _ in range(times):
        fill(limiter)
        limiter.record_success(latency_s)
        limiter.release()
    while limiter.in_flight:
        limiter.release()


def adaptive(time: ToldTime, ceiling: int = 500) -> AdaptiveLimiter:
    return AdaptiveLimiter(ceiling=ceiling, timing=time.timing)


def test_it_starts_modest_and_doubles_with_each_round_of_answers() -> None:
    limiter = adaptive(ToldTime())
    assert limiter.limit == 20

    answer(limiter, 20)
    assert limiter.limit == 40
    answer(limiter, 40)
    assert limiter.limit == 80


def test_it_ends_at_its_ceiling() -> None:
    limiter = adaptive(ToldTime(), ceiling=50)

    answer(limiter, 500)

    assert limiter.limit == 50
    assert adaptive(ToldTime(), ceiling=3).limit == 3


def test_it_does_not_grow_while_the_limit_is_not_what_holds_requests_back() -> None:
    limiter = adaptive(ToldTime())

    for _ in range(100):
        assert limiter.try_acquire()
        limiter.record_success(1.0)
        limiter.release()

    assert limiter.limit == 20


def test_an_episode_of_rate_limits_cuts_once() -> None:
    time = ToldTime()
    limiter = adaptive(time)
    answer(limiter, 80)
    assert limiter.limit == 100

    for _ in range(30):
        limiter.record_failure(THROTTLED)
        time.at += 0.4

    assert limiter.limit == 50


def test_a_rate_limit_after_the_cooldown_is_a_new_episode() -> None:
    time = ToldTime()
    limiter = adaptive(time)
    answer(limiter, 80)
    limiter.record_failure(THROTTLED)
    time.at += 16

    limiter.record_failure(THROTTLED)

    assert limiter.limit == 40


def test_retry_after_makes_the_episode_longer() -> None:
    time = ToldTime()
    limiter = adaptive(time)
    answer(limiter, 80)
    limiter.record_failure(AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=60))
    time.at += 59

    limiter.record_failure(THROTTLED)
    answer(limiter, 100)

    assert limiter.limit == 50


def test_it_does_not_grow_within_an_episode_and_grows_by_a_tenth_after_it() -> None:
    time = ToldTime()
    limiter = adaptive(time)
    answer(limiter, 80)
    limiter.record_failure(THROTTLED)

    answer(limiter, 200)
    assert limiter.limit == 50
    time.at += 15
    answer(limiter, 50)
    assert limiter.limit in (54, 55)


@pytest.mark.parametrize("kind", [ErrorKind.OVERLOADED, ErrorKind.TIMEOUT, ErrorKind.UNREACHABLE])
def test_server_trouble_stops_growth_for_a_while_and_cuts_nothing(kind: ErrorKind) -> None:
    time = ToldTime()
    limiter = adaptive(time)

    limiter.record_failure(AttemptError(kind, "trouble"))
    answer(limiter, 100)
    assert limiter.limit == 20
    time.at += 15
    answer(limiter, 20)
    assert limiter.limit == 40


def test_a_request_that_is_wrong_says_nothing_about_the_server() -> None:
    limiter = adaptive(ToldTime())

    limiter.record_failure(AttemptError(ErrorKind.REFUSED, "HTTP 400", 400))
    answer(limiter, 20)

    assert limiter.limit == 40


def test_it_stops_growing_when_answers_take_twice_as_long_and_goes_on_when_they_do_not() -> None:
    limiter = adaptive(ToldTime())
    answer(limiter, 20, latency_s=1.0)

    answer(limiter, 400, latency_s=5.0)
    held = limiter.limit
    answer(limiter, 400, latency_s=5.0)
    assert limiter.limit == held < 100
    answer(limiter, 2 * held, latency_s=1.0)
    assert limiter.limit > held


def test_after_long_rate_limiting_it_is_not_stuck_at_the_bottom() -> None:
    time = ToldTime()
    limiter = adaptive(time)
    for _ in range(200):
        limiter.record_failure(THROTTLED)
        time.at += 16
    assert limiter.limit == 1

    time.at += 16
    answers_needed = 0
    while limiter.limit < 100:
        answer(limiter, 1)
        answers_needed += 1

    assert answers_needed < 1500


def test_what_is_waiting_starts_when_the_limit_grows() -> None:
    async def scenario() -> None:
        limiter = adaptive(ToldTime(), ceiling=500)
        fill(limiter)
        waiting = [asyncio.create_task(limiter.acquire()) for _ in range(2)]
        await settle()

        limiter.record_success(1.0)
        limiter.release()

        await asyncio.gather(*waiting)
        assert limiter.in_flight == 21

    asyncio.run(scenario())


@given(st.integers(1, 1000), st.integers(1, 64))
def test_the_shares_of_a_limit_add_up_to_it(limit: int, parts: int) -> None:
    shares = []
    for part in range(parts):
        share = LimitShare()
        share.set(part, parts)
        shares.append(share.take(limit))

    # A process without a slot would wait forever.
    assert sum(shares) == max(limit, parts)
    assert max(shares) - min(shares) <= 1
