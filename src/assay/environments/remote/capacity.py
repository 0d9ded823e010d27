"""The queue of episodes that wait for a free session of a server."""

import asyncio
import random
from collections import deque
from collections.abc import Callable


class CapacityQueue:
    """A first-in, first-out queue, shared by all episodes at one server."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._chance = chance

    async def wait(self, retry_after_s: float) -> None:
        """Wait until another session of this process ends, at most `retry_after_s` plus jitter.

        Jitter of up to 50 % keeps callers with the same delay from retrying at the same time.
        """
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        try:
            async with asyncio.timeout(retry_after_s * (1 + self._chance() / 2)):
                await call
        except TimeoutError:
            # Not an error: the caller retries, since sessions of other processes may have ended.
            self._leave(call)
        except asyncio.CancelledError:
            self._leave(call)
            raise

    def release(self) -> None:
        """Wake the first episode in the queue, after a session has ended."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.done():
                call.set_result(None)
                return

    def _leave(self, call: "asyncio.Future[None]") -> None:
        if call in self._waiting:
            self._waiting.remove(call)
        elif not call.cancelled():
            # Woken and cancelled at the same time: pass the free session on.
            self.release()
