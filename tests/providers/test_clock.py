"""Time as an argument."""

import asyncio
import time

from assay.providers.clock import REAL_TIME


def test_by_default_it_is_the_real_time() -> None:
    before = time.monotonic()

    asyncio.run(_sleep())

    assert REAL_TIME.clock() >= before
    assert abs(REAL_TIME.now() - time.time()) < 5
    assert 0 <= REAL_TIME.chance() < 1


async def _sleep() -> None:
    await REAL_TIME.sleep(0)
