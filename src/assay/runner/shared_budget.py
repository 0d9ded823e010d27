"""One limit on the cost of a run whose samples are executed by several processes.

The command keeps the ledger. Its workers ask it before each sample and report each cost, so that
the limit is as exact as in one process.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

BudgetMessage = dict[str, float | bool | None]
"""A plain message between the command and a worker."""


def fits_budget(limit: float, spent: float, *, usual: float | None, in_flight: int) -> bool:
    """Whether another sample fits, if those in flight cost the usual: None before any ended."""
    return not in_flight or usual is None or spent + usual * in_flight < limit


class BudgetLedger:
    """The costs and the samples in flight of all workers, kept by the command."""

    def __init__(
        self, limit_usd: float, spent_usd: float, *, send: Callable[[int, BudgetMessage], None]
    ) -> None:
        self._limit_usd = limit_usd
        self._before_usd = spent_usd
        self._spent_usd: float | None = spent_usd
        self._send = send
        self._ended = 0
        self._in_flight: Counter[int] = Counter()
        self._waiting: deque[int] = deque()

    def receive(self, worker: int, message: BudgetMessage) -> None:
        """Count a cost, the end of a sample or a request of a worker, and answer requests."""
        if "spent" in message:
            cost = message["spent"]
            if self._spent_usd is not None:
                self._spent_usd = None if cost is None else self._spent_usd + cost
        elif "ended" in message:
            self._in_flight[worker] -= 1
            self._ended += bool(message["ended"])
        else:
            self._waiting.append(worker)
        self._answer_requests()

    def forget(self, worker: int) -> None:
        """Drop the samples in flight and the requests of a process that has ended."""
        del self._in_flight[worker]
        self._waiting = deque(each for each in self._waiting if each != worker)
        self._answer_requests()

    def _answer_requests(self) -> None:
        while self._waiting:
            spent, in_flight = self._spent_usd, self._in_flight.total()
            is_spent = spent is None or spent >= self._limit_usd
            if not is_spent:
                assert spent is not None
                usual = (spent - self._before_usd) / self._ended if self._ended else None
                if not fits_budget(self._limit_usd, spent, usual=usual, in_flight=in_flight):
                    return
            worker = self._waiting.popleft()
            self._in_flight[worker] += not is_spent
            self._send(worker, {"granted": not is_spent, "spent": spent})


class SharedBudget:
    """The connection of a worker process to the ledger of its command."""

    def __init__(self) -> None:
        self.spent_usd: float | None = 0.0
        """Cost of the whole run, as of the last answer. None: a cost is unknown."""

        self._send: Callable[[BudgetMessage], None] | None = None
        self._requests: deque[asyncio.Future[bool]] = deque()

    @property
    def is_open(self) -> bool:
        return self._send is not None

    def open(self, send: Callable[[BudgetMessage], None]) -> None:
        """Ask the command for each sample from now on. `send` must return at once."""
        self._send = send

    async def request(self) -> bool:
        """Wait until a sample may start. Return False if the budget is spent."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._requests.append(waiter)
        self._report({"request": True})
        return await waiter

    def spend(self, cost_usd: float | None) -> None:
        """Report the cost of a model call."""
        self._report({"spent": cost_usd})

    def end(self, *, was_executed: bool) -> None:
        """Report the end of a sample, or one that was granted and is not needed."""
        self._report({"ended": was_executed})

    def _report(self, message: BudgetMessage) -> None:
        assert self._send is not None
        self._send(message)

    def receive(self, message: BudgetMessage) -> None:
        """Take the answer to the oldest request, from any thread."""
        waiter = self._requests.popleft()
        # The loop is closed when the run was stopped meanwhile.
        loop = waiter.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle, waiter, message)

    def _settle(self, waiter: asyncio.Future[bool], message: BudgetMessage) -> None:
        self.spent_usd = message["spent"]
        if not waiter.done():
            waiter.set_result(bool(message["granted"]))
        elif message["granted"]:
            self.end(was_executed=False)  # the worker stopped waiting


BUDGET = SharedBudget()
