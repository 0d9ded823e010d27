"""When a failed attempt is followed by another one, and after how long."""

from assay.errors import EndpointError

from .attempt_errors import AttemptError, ErrorKind
from .clock import Timing

_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 60.0
_GARBLED_RETRIES = 1
_MAX_DOUBLINGS = 16


class RetryBudget:
    """The retries of one call: counted, spread by chance, and bounded in time.

    The wait before retry n is a random part of 0.5 s times 2 to the n, at most 60 s ("full
    jitter"): many callers that failed together do not come back together. A wait that the server
    asks for is never cut short. It also does not count as one of `max_retries`, since a server
    that names a time is working; `max_wait_s` ends that.
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
        """How long to wait before the next attempt. Raises `EndpointError` if there is none."""
        if fault.permanent or self._exhausts_budget(fault):
            raise fault.error(where=self._where, attempts=attempts)
        longest = _FIRST_BACKOFF_S * 2.0 ** min(self._rounds, _MAX_DOUBLINGS)
        wait = min(longest, _MAX_BACKOFF_S) * self._timing.chance()
        self._rounds += 1
        left = self._max_wait_s - self._waited_s
        asked = fault.retry_after_s
        if asked is not None:
            # A little over, so that callers told the same second do not arrive in the same one.
            wait = max(min(asked + wait / 4, left), asked)
        if wait > left:
            raise self._build_timeout_error(fault, attempts)
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

    def _build_timeout_error(self, fault: AttemptError, attempts: int) -> EndpointError:
        left = self._max_wait_s - self._waited_s
        why = f"only {left:.3g} s are left of the {self._max_wait_s:g} s wait limit of one call"
        if fault.retry_after_s is not None:
            why = (
                f"the server asks to wait {fault.retry_after_s:.3g} s, but {left:.3g} s are left "
                f"of the {self._max_wait_s:g} s wait limit of one call"
            )
        return fault.error(where=self._where, attempts=attempts, why=why)
