"""The budget of several processes: granted as in one process, and exact."""

import asyncio

import pytest

from assay.runner.shared_budget import BudgetLedger, BudgetMessage, SharedBudget


class Workers:
    """A ledger and what it sent."""

    def __init__(self, limit: float, spent: float = 0.0) -> None:
        self.sent: list[tuple[int, BudgetMessage]] = []
        self.ledger = BudgetLedger(
            limit, spent, send=lambda worker, message: self.sent.append((worker, message))
        )

    def ask(self, *workers: int) -> list[tuple[int, bool]]:
        for worker in workers:
            self.ledger.receive(worker, {"request": True})
        return self.take()

    def end(self, worker: int, cost: float | None) -> list[tuple[int, bool]]:
        self.ledger.receive(worker, {"spent": cost})
        self.ledger.receive(worker, {"ended": True})
        return self.take()

    def take(self) -> list[tuple[int, bool]]:
        sent = [(worker, bool(message["granted"])) for worker, message in self.sent]
        self.sent.clear()
        return sent


def test_samples_are_granted_while_those_in_flight_everywhere_fit_the_limit() -> None:
    workers = Workers(limit=4.0)
    assert workers.ask(1) == [(1, True)]
    assert workers.end(1, 1.0) == []

    # One is spent and costs the usual: two more in flight fit below four, a third does not.
    assert workers.ask(1, 2, 2, 1) == [(1, True), (2, True), (2, True)]
    assert workers.end(2, 0.5) == [(1, True)]


def test_a_spent_limit_is_refused_to_all_who_wait() -> None:
    workers = Workers(limit=2.0)
    assert workers.ask(1, 2) == [(1, True), (2, True)]
    assert workers.end(1, 1.0) == []
    assert workers.ask(1) == []
    workers.ledger.receive(2, {"request": True})

    assert workers.end(2, 1.5) == [(1, False), (2, False)]
    assert workers.ask(3) == [(3, False)]


def test_an_unknown_cost_ends_the_budget() -> None:
    workers = Workers(limit=2.0)
    assert workers.ask(1) == [(1, True)]

    workers.end(1, None)

    assert workers.ask(1) == [(1, False)]


def test_earlier_costs_count_towards_the_limit_and_not_towards_the_usual_cost() -> None:
    workers = Workers(limit=10.0, spent=8.0)
    assert workers.ask(1) == [(1, True)]
    assert workers.end(1, 0.5) == []

    assert workers.ask(1, 1, 1, 1) == [(1, True), (1, True), (1, True)]


@pytest.mark.parametrize("way", ["killed", "unused"])
def test_a_grant_that_is_not_used_returns_to_the_others(way: str) -> None:
    workers = Workers(limit=2.0)
    assert workers.ask(1) == [(1, True)]
    assert workers.end(1, 1.0) == []
    assert workers.ask(1, 2) == [(1, True)]

    if way == "killed":
        workers.ledger.forget(1)
    else:
        workers.ledger.receive(1, {"ended": False})

    assert workers.take() == [(2, True)]


def test_a_worker_waits_for_the_answer_to_its_request() -> None:
    sent: list[BudgetMessage] = []
    budget = SharedBudget()
    assert not budget.is_open
    budget.open(sent.append)

    async def ask() -> tuple[bool, bool]:
        first, second = (asyncio.create_task(budget.request()) for _ in range(2))
        await asyncio.sleep(0)
        assert sent == [{"request": True}] * 2
        budget.receive({"granted": True, "spent": 1.0})
        budget.receive({"granted": False, "spent": 2.0})
        return await first, await second

    assert asyncio.run(ask()) == (True, False)
    assert budget.spent_usd == 2.0


def test_a_grant_for_a_cancelled_request_is_given_back() -> None:
    sent: list[BudgetMessage] = []
    budget = SharedBudget()
    budget.open(sent.append)

    async def cancel() -> None:
        request = asyncio.create_task(budget.request())
        await asyncio.sleep(0)
        request.cancel()
        budget.receive({"granted": True, "spent": 0.0})
        await asyncio.gather(request, return_exceptions=True)
        await asyncio.sleep(0)

    asyncio.run(cancel())
    assert sent == [{"request": True}, {"ended": False}]
