"""Clock, sleep and randomness as arguments, so that tests need not wait."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """The time and random sources of a client."""

    clock: Callable[[], float] = time.monotonic
    """For durations."""

    now: Callable[[], float] = time.time
    """Seconds since 1970, for dates in headers."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    """A number from 0 to 1."""


REAL_TIME = Timing()
