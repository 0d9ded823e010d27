"""`CapacityQueue`: first come, first called; nobody waits longer than asked, no call gets lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from assay.environments.remote.capacity import CapacityQueue


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
