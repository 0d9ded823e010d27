"""Retry requests to a server that is at capacity."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assay.errors import EnvironmentFault

from .http_client import EnvironmentClient, ServerResponse

AttemptResult = TypeVar("AttemptResult")

_DEFAULT_RETRY_S = 1.0


class ServerBusy(Exception):
    """The server is at capacity. Nothing was executed, so that the request can be retried."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__("the server has no session free")
        self.retry_after_s = _DEFAULT_RETRY_S if retry_after_s is None else retry_after_s

    @classmethod
    def check(cls, answer: ServerResponse) -> None:
        """Raise `ServerBusy` for status 429, and for 503 with `Retry-After`."""
        wait_s = answer.retry_after_s
        if answer.status == 429 or (answer.status == 503 and wait_s is not None):
            raise cls(wait_s)


async def retry_while_busy(
    client: EnvironmentClient,
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
