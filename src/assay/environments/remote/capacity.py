"""Where episodes wait for a server that has no session free."""

import asyncio
import random
from collections import deque
from collections.abc import Callable


class CapacityQueue:
    """Shared by all episodes at one server: the one that waits longest is called first."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._chance = chance

    async def wait(self, retry_after_s: float) -> None:
        """Wait until a session of ours ends, or for the time that the server asked for.

        The time is stretched by up to a half, so that callers told the same second do not come
        back in the same one.
        """
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(call)
        try:
            async with asyncio.timeout(retry_after_s * (1 + self._chance() / 2)):
                await call
        except TimeoutError:
            self._leave(call)
        except asyncio.CancelledError:
            self._leave(call)
            raise

    def release(self) -> None:
        """Say that a session of ours has ended."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.done():
                call.set_result(None)
                return

    def _leave(self, call: "asyncio.Future[None]") -> None:
        if call in self._waiting:
            self._waiting.remove(call)
        elif not call.cancelled():
            # Called and cancelled in the same moment: the place goes to the next one.
            self.release()
