"""Refusals (429) that the processes of a run report to each other: one limit for all of them."""

from collections.abc import Callable
from functools import partial
from threading import Lock
from weakref import WeakSet

from .concurrency import AdaptiveLimiter, Limiter

SendRefusal = Callable[[str, float], None]
"""Called with the name of the endpoint and the seconds that it asked to wait."""


class RefusalRelay:
    """Passes refusals on, so that each process lowers its share of the limit of an endpoint.

    The processes start with equal shares and grow and shrink them by the same rules: together they
    behave like one limit.
    """

    def __init__(self) -> None:
        self._send: SendRefusal | None = None
        self._limiters: dict[str, WeakSet[AdaptiveLimiter]] = {}
        self._lock = Lock()

    def open(self, send: SendRefusal) -> None:
        """Report the refusals of clients that are connected from now on with `send`."""
        self._send = send

    def add(self, endpoint: str, limiter: Limiter) -> None:
        """Connect the limiter of a client. A fixed limit learns nothing from refusals."""
        if self._send is None or not isinstance(limiter, AdaptiveLimiter):
            return
        limiter.on_cut = partial(self._send, endpoint)
        with self._lock:
            self._limiters.setdefault(endpoint, WeakSet()).add(limiter)

    def receive(self, endpoint: str, pause_s: float) -> None:
        """Report to the limiters of an endpoint that another process was refused, from any thread.

        They take it for one of their own with the next answer.
        """
        with self._lock:
            for limiter in self._limiters.get(endpoint, ()):
                limiter.refusals.append(pause_s)


REFUSALS = RefusalRelay()
