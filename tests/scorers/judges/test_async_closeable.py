"""`async with`: closed at the end, whatever happened in it."""

import asyncio

import pytest

from assay.scorers.judges.async_closeable import AsyncCloseable


class Held(AsyncCloseable):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_it_is_closed_at_the_end_and_when_something_breaks() -> None:
    held = Held()

    async def use(*, breaks: bool) -> None:
        async with held as same:
            assert same is held
            assert not breaks

    asyncio.run(use(breaks=False))
    with pytest.raises(AssertionError):
        asyncio.run(use(breaks=True))

    assert held.closed == 2
