"""The loop of async agents: what they raise is theirs, and nobody waits for one that hangs."""

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from assay.agents.agent import AgentFault
from assay.agents.agent_thread import AgentLoop


@pytest.fixture
def loop() -> Iterator[AgentLoop]:
    made = AgentLoop()
    yield made
    made.close()


class _Odd(BaseException):
    """Neither an exit nor an error."""


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), _Odd("x")],
    ids=lambda error: type(error).__name__,
)
def test_what_would_end_more_than_the_call_is_a_fault_of_the_agent(
    loop: AgentLoop, error: BaseException
) -> None:
    async def agent() -> str:
        raise error

    with pytest.raises(AgentFault, match=type(error).__name__):
        asyncio.run(loop.run(agent()))


def test_an_error_stays_what_it_is(loop: AgentLoop) -> None:
    async def agent() -> str:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        asyncio.run(loop.run(agent()))


def test_after_a_fault_the_next_call_is_answered(loop: AgentLoop) -> None:
    async def leaves() -> str:
        raise SystemExit

    async def stays() -> str:
        return "four"

    with pytest.raises(AgentFault):
        asyncio.run(loop.run(leaves()))
    value, seconds = asyncio.run(loop.run(stays()))

    assert value == "four"
    assert seconds >= 0


async def _timed_out(loop: AgentLoop, agent: Coroutine[Any, Any, str]) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await loop.run(agent)
    except TimeoutError:
        return True
    return False


def test_an_agent_that_refuses_to_be_cancelled_keeps_nobody_waiting(loop: AgentLoop) -> None:
    released = threading.Event()

    async def stubborn() -> str:
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    assert asyncio.run(_timed_out(loop, stubborn()))
    released.set()


def test_an_agent_that_blocks_its_loop_keeps_nobody_waiting(loop: AgentLoop) -> None:
    released = threading.Event()

    async def blocks() -> str:
        released.wait(60)
        return "late"

    assert asyncio.run(_timed_out(loop, blocks()))
    released.set()


def test_a_call_that_is_cancelled_before_it_starts_is_closed(loop: AgentLoop) -> None:
    entered, released = threading.Event(), threading.Event()

    async def blocks() -> str:
        entered.set()
        released.wait(60)
        return "late"

    async def answers() -> str:
        return "four"

    never_started = answers()

    async def cancel_while_blocked() -> tuple[object, float]:
        blocked = asyncio.create_task(loop.run(blocks()))
        await asyncio.to_thread(entered.wait, 60)
        assert await _timed_out(loop, never_started)
        released.set()
        await blocked
        return await loop.run(answers())

    # The next call is answered after the cancelled one was dealt with.
    assert asyncio.run(cancel_while_blocked())[0] == "four"
    assert inspect.getcoroutinestate(never_started) == inspect.CORO_CLOSED


def test_the_calls_of_an_agent_share_one_loop(loop: AgentLoop) -> None:
    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first, _ = asyncio.run(loop.run(where()))
    second, _ = asyncio.run(loop.run(where()))

    assert first is second
