"""A server at capacity: who is called first, how long is waited, and when it is given up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from multidict import CIMultiDict

from assay.environments.remote.capacity import CapacityQueue, ServerBusy, retry_while_busy
from assay.environments.remote.http_client import EnvironmentClient, ServerResponse
from assay.errors import EnvironmentFault
from assay.providers.reply_redaction import Redactor


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(180):
            await test()

    asyncio.run(bounded())


async def waiting(room: CapacityQueue, *names: str) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Tasks that wait in this order, and the list in which each says that it was called."""
    called: list[str] = []

    async def wait(name: str) -> None:
        await room.wait(60)
        called.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in names]
    await asyncio.sleep(0)
    return called, tasks


def test_each_release_calls_whoever_waits_longest() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second", "third")

        room.release()
        await tasks[0]
        assert called == ["first"]

        room.release()
        room.release()
        await asyncio.gather(*tasks)
        assert called == ["first", "second", "third"]

    run(test)


def test_nobody_waits_much_longer_than_the_server_asked() -> None:
    async def test() -> None:
        await CapacityQueue(chance=lambda: 1.0).wait(0.01)

    run(test)


def test_a_release_with_nobody_waiting_is_no_promise() -> None:
    async def test() -> None:
        room = CapacityQueue()
        room.release()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(room.wait(60), 0.01)

    run(test)


def test_a_call_to_somebody_who_is_cancelled_goes_to_the_next() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second")

        room.release()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert called == ["second"]

    run(test)


def test_whoever_is_cancelled_is_not_called_any_more() -> None:
    async def test() -> None:
        room = CapacityQueue()
        called, tasks = await waiting(room, "first", "second")

        tasks[0].cancel()
        await asyncio.sleep(0)
        room.release()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert called == ["second"]

    run(test)


class Room:
    """Where waiting takes no time, and moves the clock."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def wait(self, retry_after_s: float) -> None:
        self.waited.append(retry_after_s)

    def clock(self) -> float:
        return sum(self.waited)


def played(busy_times: int, retry_after_s: float | None, queue_s: float = 100.0) -> list[float]:
    """How long is waited for a server that is busy this often."""
    room: Any = Room()
    link = EnvironmentClient("http://h", None, queue_s=queue_s, queue=room)  # type: ignore[arg-type]  # not used
    left = [ServerBusy(retry_after_s)] * busy_times

    async def attempt() -> str:
        if left:
            raise left.pop()
        return "given"

    assert asyncio.run(retry_while_busy(link, attempt, clock=room.clock)) == "given"
    waited: list[float] = room.waited
    return waited


def test_a_place_that_is_free_is_taken_at_once() -> None:
    assert played(0, 5.0) == []


def test_the_time_that_the_server_names_is_waited() -> None:
    assert played(3, 2.5) == [2.5, 2.5, 2.5]


def test_a_second_is_waited_where_no_time_is_named() -> None:
    assert played(2, None) == [1.0, 1.0]


def test_no_longer_is_waited_than_the_queue_allows() -> None:
    assert played(3, 40.0) == [40.0, 40.0, 20.0]

    with pytest.raises(EnvironmentFault, match=r"the server had no free session for 100 s"):
        played(4, 40.0)


def answered(status: int, **headers: str) -> ServerResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ServerResponse(status, CIMultiDict(named), b"", "here", Redactor([]))


def test_only_a_full_server_is_busy() -> None:
    for full in (answered(429), answered(429, Retry_After="3"), answered(503, Retry_After="3")):
        with pytest.raises(ServerBusy):
            ServerBusy.check(full)

    for other in (answered(200), answered(404), answered(500), answered(503)):
        ServerBusy.check(other)


def test_the_time_is_read_from_the_answer() -> None:
    with pytest.raises(ServerBusy) as busy:
        ServerBusy.check(answered(429, Retry_After="0.5"))

    assert busy.value.retry_after_s == 0.5
