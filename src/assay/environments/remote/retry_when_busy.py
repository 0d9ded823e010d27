"""Waiting for a place at a server that is full, in place of failing."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assay.errors import EnvironmentFault

from .http_client import EnvironmentClient, ServerResponse

AttemptResult = TypeVar("AttemptResult")

_DEFAULT_RETRY_S = 1.0


class ServerBusy(Exception):
    """The server has no place now; nothing was done, so the same may be asked again."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__("the server has no session free")
        self.retry_after_s = _DEFAULT_RETRY_S if retry_after_s is None else retry_after_s

    @classmethod
    def check(cls, answer: ServerResponse) -> None:
        """Raise it if the answer says so: 429, or 503 that names a time."""
        wait_s = answer.retry_after_s
        if answer.status == 429 or (answer.status == 503 and wait_s is not None):
            raise cls(wait_s)


async def retry_while_busy(
    link: EnvironmentClient,
    attempt: Callable[[], Awaitable[AttemptResult]],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AttemptResult:
    """What `attempt` gives, once it is not answered with `ServerBusy`; for at most `link.queue_s`."""
    started = clock()
    while True:
        try:
            return await attempt()
        except ServerBusy as busy:
            left = link.queue_s - (clock() - started)
            if left <= 0:
                raise EnvironmentFault(
                    f"no session became free within {link.queue_s:g} s",
                    where=link.where,
                    hint="run fewer samples at once, or serve more sessions",
                ) from None
            wait_s = min(busy.retry_after_s, left)
        await link.room.wait(wait_s)
