"""Queries of pages and commands: PostgreSQL reads one run through an index, never a whole table."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from assay.store import Run, SampleLabel, Store, TableQuery
from assay.store.database import Transaction
from store_runs import broken, key_of, record, scored, spec

SAMPLES, OTHER_RUNS = 50, 1200
# Each with the columns of its own numbers, which must differ from run to run.
LARGE_TABLES = {
    "result": ("result_no", "run_no"),
    "body": ("result_no",),
    "excerpt": ("result_no",),
    "attempt": ("attempt_no", "run_no"),
    "label": ("label_no", "run_no"),
}


@pytest.fixture
def run(postgresql_url: str) -> Iterator[Run]:
    """One of many runs: an index has to be worth more than reading a whole table."""
    with Store.open(postgresql_url) as store:
        one = store.start_run(spec("run-1", total=SAMPLES))
        record(one, [scored(index, score=index / SAMPLES) for index in range(SAMPLES)])
        record(one, [broken(index) for index in range(SAMPLES, SAMPLES + 20)])
        for index in range(SAMPLES):
            label = SampleLabel(key=key_of(scored(index)), verdict="pass", author="ann")
            one.write_label(label)
        one.finish("completed")
        with store._database.write_transaction() as transaction:
            # Copies of its rows, under numbers of runs that need not exist.
            transaction.execute("SET LOCAL session_replication_role = replica")
            for table, numbers in LARGE_TABLES.items():
                query = (
                    "SELECT column_name FROM information_schema.columns "
                    "WHERE table_name = ? AND table_schema = current_schema"
                )
                names = transaction.execute(query, f"assay_{table}").scalars()
                values = [
                    f"{name} + n * (1::bigint << 42)" if name in numbers else name for name in names
                ]
                transaction.execute(
                    f"INSERT INTO assay_{table} ({', '.join(names)}) SELECT {', '.join(values)} "
                    f"FROM assay_{table}, generate_series(1, {OTHER_RUNS}) n"
                )
        with store._database.write_transaction() as transaction:
            for table in LARGE_TABLES:
                transaction.execute(f"ANALYZE assay_{table}")
        yield store.run("run-1")


KEY = key_of(scored(3))
QUERIES: dict[str, Callable[[Run], object]] = {
    "the row of a run": lambda run: run.row(),
    "a page in the order of the dataset": lambda run: run.table().read_page(TableQuery()),
    "a page of the lowest scores": lambda run: run.table().read_page(TableQuery(sort="score")),
    "a page of a filter": lambda run: run.table().read_page(TableQuery(filter="score < 0.5")),
    "a page of a text": lambda run: run.table().read_page(TableQuery(filter="answer")),
    "the number of rows": lambda run: run.table().count_rows("score < 0.5"),
    "groups": lambda run: run.table().group_rows("status"),
    "neighbours of a sample": lambda run: run.table().find_neighbours(KEY, TableQuery()),
    "one sample": lambda run: run.find_sample(KEY),
    "the repeats of a sample": lambda run: run.find_repeats(KEY),
    "reasons of failures": lambda run: run.failure_groups(),
    "labels": lambda run: list(run.labels()),
    "labels of a page": lambda run: run.find_labels([KEY]),
    "recorded keys": lambda run: run.read_done_keys(),
    "the revision of a live page": lambda run: run.read_revision(),
    "results": lambda run: list(run.results()),
}


def test_no_table_of_results_is_read_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[tuple[str, str, tuple[object, ...]]] = []
    execute = Transaction.execute
    for name, query in QUERIES.items():

        def remember(
            transaction: Transaction, statement: str, *values: object, name: str = name
        ) -> Any:
            executed.append((name, statement, values))
            return execute(transaction, statement, *values)

        monkeypatch.setattr(Transaction, "execute", remember)
        query(run)
    monkeypatch.undo()

    assert {name for name, _, _ in executed} == set(QUERIES)
    whole = []
    with run._database.read_transaction() as transaction:
        for name, statement, values in executed:
            if not statement.lstrip().startswith("SELECT"):
                continue
            plan = "\n".join(transaction.execute(f"EXPLAIN {statement}", *values).scalars())
            whole += [
                f"{name} reads {table}:\n{statement}\n{plan}"
                for table in LARGE_TABLES
                if f"Seq Scan on assay_{table}" in plan
            ]
        # A plan that reads everything is recognized.
        slow = "EXPLAIN SELECT count(*) FROM assay_result WHERE latency_s > 5"
        assert "Seq Scan on assay_result" in "\n".join(transaction.execute(slow).scalars())
    assert not whole, "\n\n".join(whole)
