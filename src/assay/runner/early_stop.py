"""Early stops: nothing succeeds, too many samples failed, or the budget is spent."""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from pathlib import PurePath
from traceback import extract_tb

from assay.errors import AccessDenied, AssayError, EndpointError, RunStopped, StoreError
from assay.providers import ClientWrapper, ModelClient, Reply
from assay.types import Boundary, Failure, Usage, redact

from .peers import Peers
from .shared_budget import SharedBudget, fits_budget

FailOnError = bool | float | int | None

# Samples in flight until the first one succeeds: a wrong setup should not cost a full batch.
_MAX_PROBES = 10

# Slow samples without a failure must not hold the others back for longer than this.
_PROBE_S = 1.0

# How often costs and failures of other processes are read: a limit may be exceeded meanwhile.
_POLL_S = 0.5

# How long a process in which nothing succeeds waits for another one that does.
_PEERS_S = 5.0

# This many equal failures without a success, and the run is hopeless.
_MAX_EQUAL_FAILURES = 5

# Failures that differ may be caused by their samples, so that more of them are needed.
_MAX_MIXED_FAILURES = 20

_HINTS_BY_BOUNDARY = {
    Boundary.AGENT: "fix the agent and resume the run: failed samples are repeated",
    Boundary.ENDPOINT: "check the endpoint with `assay doctor --model PROVIDER:MODEL`",
    Boundary.ENVIRONMENT: "fix the environment or its factory",
    Boundary.SCORER: "fix the scorer and resume the run: its rollouts are kept",
    Boundary.DATASET: "fix `prepare_messages` or the dataset",
    Boundary.GATEWAY: "resume the run: failed samples are repeated",
}


class EarlyStop:
    """Decides from the outcomes so far whether to start another sample."""

    def __init__(
        self,
        *,
        fail_on_error: FailOnError = None,
        total: int | None = None,
        max_cost_usd: float | None = None,
        spent_usd: float = 0.0,
        resumed: bool = False,
        is_watching: bool = True,
    ) -> None:
        self._fail_on_error = fail_on_error
        self._total = total
        self._max_cost_usd = max_cost_usd
        self._spent_usd: float | None = spent_usd
        self._before_usd = spent_usd
        self._resumed = resumed
        self._is_watching = is_watching
        self.peers: Peers | None = None
        """The other processes of a sharded run."""

        self.answered = False
        """Whether any model call was answered."""

        self.succeeded = False
        """Whether any sample was rolled out and scored."""

        self.failed = 0
        self._is_confirmed = False
        self._forbidden = 0
        self._kinds: Counter[tuple[Boundary, str]] = Counter()
        self._boundaries: Counter[Boundary] = Counter()
        self._last: dict[Boundary, tuple[BaseException, str]] = {}

    @property
    def is_settled(self) -> bool:
        """Whether samples may start without further checks."""
        return self.succeeded and self._max_cost_usd is None and not self._counts_peer_failures

    @property
    def budget(self) -> SharedBudget | None:
        """The budget that a command shares out to its workers, if the run has one."""
        return None if self.peers is None or self._max_cost_usd is None else self.peers.budget

    @property
    def _counts_peer_failures(self) -> bool:
        return self.peers is not None and self._fail_on_error not in (None, False)

    def answer(self, usage: Usage | None) -> None:
        """Record an answer of the model and its cost."""
        self.answered = True
        cost = None if usage is None else usage.cost_usd
        if self._spent_usd is not None:
            self._spent_usd = None if cost is None else self._spent_usd + cost
        if (budget := self.budget) is not None:
            budget.spend(cost)

    def fail(self, error: BaseException, failure: Failure) -> AssayError | None:
        """Count a failed sample. Returns the error that ends the run at once, if any."""
        self.failed += 1
        boundary = failure.boundary
        # The key of a judge is another one than that of the agent's model.
        accepted = self.answered and (self.succeeded or boundary is not Boundary.SCORER)
        if isinstance(error, AccessDenied) and not accepted:
            # Every other call would be refused as well. A 403 of a model may concern one input
            # only, and often arrives before the first answer: it takes several of them.
            alone = boundary is not Boundary.AGENT and error.status == 403
            self._forbidden += alone
            if not alone or self._forbidden == _MAX_EQUAL_FAILURES:
                return error
        text = f"{failure.kind}: {failure.message}"
        if isinstance(error, AssayError):
            text = redact(error.message)
        # Replayed samples cost nothing, and each shows its own difference: they never end a run.
        counts = self._is_watching and boundary is not Boundary.REPLAY
        if counts and not self.succeeded and (_is_outage(error) or not self._resumed):
            self._last[boundary] = error, text
            self._boundaries[boundary] += 1
            # A timeout may be caused by its sample.
            if not isinstance(error, TimeoutError):
                self._kinds[boundary, text] += 1
        if stopped := self._find_failure_error(f", the last one at the {boundary}: {text}"):
            return stopped
        if self._kinds[boundary, text] >= _MAX_MIXED_FAILURES and self.is_hopeless:
            # End at once: the samples in flight would be paid for in vain.
            return self.build_hopeless_error()
        return None

    def conclude(self, ended: int) -> RunStopped | None:
        """Apply a `fail_on_error` share whose total is known only at the end of the run."""
        if self.peers is None and self._total is not None:
            return None
        self._total = ended
        if self.peers is not None and self._counts_peer_failures:
            # A store that cannot be read now has the samples of this process all the same.
            with suppress(StoreError):
                self.peers.refresh()
        return self._find_failure_error()

    def _find_failure_error(self, last: str = "") -> RunStopped | None:
        """Return the error that ends a run with more failures than `fail_on_error` allows."""
        failed, total = self.failed, self._total
        if self.peers is not None:
            failed, total = failed + self.peers.failed, self.peers.total
        if not exceeds(failed, self._fail_on_error, total):
            return None
        of = "" if total is None else f" of {total}"
        return RunStopped(
            f"the run was stopped by fail_on_error={self._fail_on_error}: {failed}{of} samples "
            f"failed{last}",
            hint="resume the run to retry the failed samples, or allow more of them to fail",
        )

    @property
    def is_hopeless(self) -> bool:
        """Whether there were enough failures and no success, here and in other processes."""
        if self.succeeded or self._find_hopeless_boundary() is None:
            return False
        if self.peers is not None and self.peers.has_success():
            self.succeeded = True
        return not self.succeeded

    async def confirm_hopeless(self) -> bool:
        """Whether the other processes fail as well, or none of them succeeds for a while."""
        peers, deadline = self.peers, time.monotonic() + _PEERS_S
        while peers is not None and peers.count > 1 and not self._is_confirmed:
            # Results are written in batches: those of others may be on their way.
            await asyncio.sleep(min(_POLL_S, _PEERS_S))
            with suppress(StoreError):
                await peers.poll()
            if not self.is_hopeless:
                return False
            late = time.monotonic() >= deadline
            self._is_confirmed = late or peers.failed >= _MAX_EQUAL_FAILURES
        return self.is_hopeless

    def _find_hopeless_boundary(self) -> Boundary | None:
        for boundary, count in self._boundaries.items():
            same = (n for (side, _), n in self._kinds.items() if side is boundary)
            if count >= _MAX_MIXED_FAILURES or max(same, default=0) >= _MAX_EQUAL_FAILURES:
                return boundary
        return None

    def build_hopeless_error(self) -> RunStopped:
        """Build the error that ends a hopeless run."""
        boundary = self._find_hopeless_boundary()
        assert boundary is not None
        (error, text), count = self._last[boundary], self._boundaries[boundary]
        hint = error.hint if isinstance(error, AssayError) else None
        frames = extract_tb(error.__traceback__)
        location = ""
        if frames and not isinstance(error, AssayError):
            # Errors of user code need a place to look at; our own name it in `where`.
            location = f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})"
        stopped = RunStopped(
            f"the run was stopped: none of the first {count} samples succeeded, all failed at the "
            f"{boundary}: {text}{location}",
            where=redact(error.where) if isinstance(error, AssayError) and error.where else None,
            hint=redact(hint) if hint else _HINTS_BY_BOUNDARY[boundary],
        )
        stopped.__cause__ = error
        return stopped

    def can_afford(self, ended: int, in_flight: int) -> bool:
        """Whether another sample fits the budget, if those in flight cost the average."""
        limit, spent = self._max_cost_usd, self._spent_in_run_usd
        if limit is None or spent is None or self._spent_usd is None or self.budget is not None:
            return True
        usual = (self._spent_usd - self._before_usd) / ended if ended else None
        # The other processes have about as many in flight.
        everywhere = in_flight * (1 if self.peers is None else self.peers.count)
        return fits_budget(limit, spent, usual=usual, in_flight=everywhere)

    @property
    def _spent_in_run_usd(self) -> float | None:
        if (budget := self.budget) is not None:
            return budget.spent_usd
        if self._spent_usd is None or self.peers is None:
            return self._spent_usd
        return self._spent_usd + self.peers.spent_usd

    def find_limit_error(self) -> RunStopped | None:
        """Return the error that ends a run over its budget, or in which others failed too often."""
        if self._counts_peer_failures and (error := self._find_failure_error()) is not None:
            return error
        limit, spent = self._max_cost_usd, self._spent_in_run_usd
        if limit is None or (spent is not None and spent < limit):
            return None
        if spent is None:
            reason = "the cost of a model call is unknown, so the limit cannot be enforced"
            hint = "remove the limit, or set a price for the model: ClientSettings(prices=...)"
        else:
            reason = f"the model calls of this run cost ${spent:.4f}"
            hint = "resume the run with a higher limit to execute the remaining samples"
        return RunStopped(f"the run was stopped by max_cost_usd={limit:g}: {reason}", hint=hint)

    async def poll_peers(self) -> None:
        """Read costs and failures of other processes periodically, if the run has a limit."""
        while self.peers and (self._counts_peer_failures or self._max_cost_usd is not None):
            await asyncio.sleep(_POLL_S)
            # A store that cannot be read cannot be written either, and the writer reports that.
            with suppress(StoreError):
                await self.peers.poll()


def exceeds(failed: int, limit: FailOnError, total: int | None) -> bool:
    """Whether more samples failed than `fail_on_error` allows.

    True allows none, a whole number that many, and a share that part of all samples. A share
    cannot be applied before the total is known.
    """
    if limit is None or limit is False:
        return False
    if limit is True:
        return failed > 0
    if limit >= 1:
        return failed > limit
    return total is not None and failed > limit * total


class Admission:
    """Admits samples: few until the first one succeeds, so that a hopeless run costs little."""

    def __init__(self, early: EarlyStop) -> None:
        self._early = early
        self._in_flight = 0
        self._granted = 0
        self._ended = 0
        processes = 1 if early.peers is None else early.peers.count
        self._most: float = max(_MAX_PROBES // processes, 1)
        self._changed = asyncio.Event()
        self._confirmation = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> RunStopped | None:
        """Wait until a sample may start. Returns the reason if the run should end instead."""
        early = self._early
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PROBE_S, self._stop_probing)
        while not early.is_settled:
            if (spent := early.find_limit_error()) is not None:
                return spent
            if early.is_hopeless:
                # Wait for the samples in flight: one that started earlier may still succeed.
                if not self._in_flight:
                    async with self._confirmation:
                        if await early.confirm_hopeless():
                            return early.build_hopeless_error()
                    continue
            elif early.can_afford(self._ended, self._in_flight) and (
                early.succeeded or self._in_flight + self._granted < self._most
            ):
                if (budget := early.budget) is None:
                    break
                # Counted while it waits: else all tasks would ask at once before a success.
                self._granted += 1
                is_granted = False
                try:
                    is_granted = await budget.request()
                finally:
                    if not is_granted:
                        self._leave_queue()
                if is_granted:
                    break
                continue
            self._changed.clear()
            await self._changed.wait()
        return None

    def start(self) -> None:
        self._in_flight += 1
        self._granted -= self._early.budget is not None

    def end(self) -> None:
        self._in_flight -= 1
        self._ended += 1
        self._changed.set()
        if (budget := self._early.budget) is not None:
            budget.end(was_executed=True)

    def withdraw(self) -> None:
        """Return an admission of `enter` that no sample uses."""
        if (budget := self._early.budget) is not None:
            self._leave_queue()
            budget.end(was_executed=False)

    def _leave_queue(self) -> None:
        self._granted -= 1
        # Others may wait for its place, and no sample in flight would wake them.
        self._changed.set()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _stop_probing(self) -> None:
        if not self._early.failed:
            self._most = float("inf")
            self._changed.set()


class ObservedClient(ClientWrapper):
    """A model client that reports each answer to `EarlyStop`."""

    def __init__(self, client: ModelClient, early: EarlyStop) -> None:
        super().__init__(client)
        self._early = early

    def _observe(self, reply: Reply) -> None:
        self._early.answer(reply.call.usage)


def _is_outage(error: BaseException) -> bool:
    """Whether the endpoint failed independently of the sample."""
    # Used for resumed runs: their remaining samples may have failed before because of their input.
    if not isinstance(error, EndpointError):
        return False
    status = error.status
    return status is None or status in (401, 403, 404, 429) or status >= 500
