"""Runs that are deleted while another process has them open."""

import pytest

from assay.errors import ConfigError, StoreError
from assay.store import Store, TableQuery
from assay.types import Sample
from store_runs import broken, key_of, record, scored, spec


def delete_under_another_process(store: Store, run_id: str) -> None:
    """Delete a run whose process was suspended for so long that it counts as dead."""
    with store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_lease SET heartbeat_at = 0")
    store.delete_run(run_id)


def test_a_deleted_run_that_is_still_open_is_told_apart_from_the_next_one(store: Store) -> None:
    gone = store.start_run(spec("gone"))
    record(gone, [scored(0), broken(1)])
    totals = gone.totals
    delete_under_another_process(store, "gone")
    new = store.start_run(spec("new"))
    record(new, [scored(7)])

    for read in (
        gone.row,
        gone.read_counts,
        lambda: gone.status,
        lambda: list(gone.results()),
        lambda: list(gone.samples()),
        lambda: list(gone.samples_with_keys()),
        lambda: gone.record_total(5),
    ):
        with pytest.raises(ConfigError, match="run 'gone' was deleted"):
            read()
    assert list(gone.table().rows(TableQuery())) == []
    assert gone.find_sample(key_of(scored(7))) is None
    assert gone.read_revision() == "deleted"
    gone.keep_summary("{}", totals)
    gone.mark_failed()
    gone.finish("completed")
    assert (new.find_summary(), new.status) == (None, "running")


@pytest.mark.parametrize("late", [scored(1), broken(1)])
def test_a_process_whose_run_was_deleted_records_nothing(store: Store, late: Sample) -> None:
    gone = store.start_run(spec("gone"))
    record(gone, [scored(0)])
    delete_under_another_process(store, "gone")
    new = store.start_run(spec("new"))

    with pytest.raises(StoreError, match="deleted by another process while it was recorded"):
        record(gone, [late])

    assert new.read_counts()[:2] == (0, 0)
    assert list(new.results()) == []
