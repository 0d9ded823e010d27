"""Servers at capacity: the queue of episodes for a free session, and the retry of requests."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from assay.errors import EnvironmentFault

if TYPE_CHECKING:
    from .http_client import EnvironmentClient, ServerResponse

AttemptResult = TypeVar("AttemptResult")

_DEFAULT_RETRY_S = 1.0


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


class ServerBusy(Exception):
    """The server is at capacity. Nothing was executed, so that the request can be retried."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__("the server has no session free")
        self.retry_after_s = _DEFAULT_RETRY_S if retry_after_s is None else retry_after_s

    @classmethod
    def check(cls, answer: "ServerResponse") -> None:
        """Raise `ServerBusy` for status 429, and for 503 with `Retry-After`."""
        wait_s = answer.retry_after_s
        if answer.status == 429 or (answer.status == 503 and wait_s is not None):
            raise cls(wait_s)


async def retry_while_busy(
    client: "EnvironmentClient",
    attempt: Callable[[], Awaitable[AttemptResult]],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AttemptResult:
    """Retry `attempt` while it raises `ServerBusy`, for at most `client.queue_s`."""
    started = clock()
    while True:
        try:
            return await attempt()
        except ServerBusy as busy:
            left = client.queue_s - (clock() - started)
            if left <= 0:
                raise EnvironmentFault(
                    f"the server had no free session for {client.queue_s:g} s",
                    where=client.where,
                    hint="run fewer samples at once, or serve more sessions",
                ) from None
            wait_s = min(busy.retry_after_s, left)
        await client.queue.wait(wait_s)
