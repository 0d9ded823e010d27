"""Time and chance as arguments, so that waiting can be tested without waiting."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Where a client takes the time and its dice from."""

    clock: Callable[[], float] = time.monotonic
    """For durations."""

    now: Callable[[], float] = time.time
    """Seconds since 1970, for dates that a server names."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    """A number from 0 to 1."""


REAL_TIME = Timing()
