"""Retries of a call: whether, and after which wait."""

from .attempt_errors import AttemptError, ErrorKind
from .clock import Timing

_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 60.0
# An invalid answer is rarely transient: one retry, in case a proxy sent it.
_GARBLED_RETRIES = 1
# Keeps the power finite: retries after a `Retry-After` are not counted.
_MAX_DOUBLINGS = 16


class RetryBudget:
    """The retries of one call, limited in number and total wait.

    The wait before retry n is a random part of 0.5 s times 2 to the n, at most 60 s ("full
    jitter"), so that callers which failed together do not retry together. A `Retry-After` is never
    shortened. It also does not count towards `max_retries`, since a server that sends one is
    working; `max_wait_s` limits it.
    """

    def __init__(self, *, max_retries: int, max_wait_s: float, where: str, timing: Timing) -> None:
        self._max_retries = max_retries
        self._max_wait_s = max_wait_s
        self._where = where
        self._timing = timing
        self._waited_s = 0.0
        self._rounds = 0
        self._counted = 0
        self._garbled = 0

    def wait_s(self, fault: AttemptError, *, attempts: int) -> float:
        """Return the wait before the next attempt. Raises `EndpointError` if there is none."""
        if fault.permanent or self._exhausts_budget(fault):
            raise fault.error(where=self._where, attempts=attempts)
        longest = _FIRST_BACKOFF_S * 2.0 ** min(self._rounds, _MAX_DOUBLINGS)
        wait = min(longest, _MAX_BACKOFF_S) * self._timing.chance()
        self._rounds += 1
        left = self._max_wait_s - self._waited_s
        retry_after = fault.retry_after_s
        if retry_after is not None:
            # With jitter, so that callers with the same `Retry-After` do not arrive together.
            wait = max(min(retry_after + wait / 4, left), retry_after)
        if wait > left:
            why = f"only {left:.3g} s are left of the {self._max_wait_s:g} s wait limit of one call"
            if retry_after is not None:
                why = (
                    f"the server asks to wait {retry_after:.3g} s, but {left:.3g} s are left "
                    f"of the {self._max_wait_s:g} s wait limit of one call"
                )
            raise fault.error(where=self._where, attempts=attempts, why=why)
        self._waited_s += wait
        return wait

    def _exhausts_budget(self, fault: AttemptError) -> bool:
        if self._max_retries == 0:
            return True
        if fault.kind is ErrorKind.GARBLED:
            self._garbled += 1
            if self._garbled > _GARBLED_RETRIES:
                return True
        if fault.kind is not ErrorKind.THROTTLED or fault.retry_after_s is None:
            self._counted += 1
        return self._counted > self._max_retries
