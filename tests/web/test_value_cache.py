"""Kept values: built once, built again after a change, and limited in size."""

import threading
from functools import partial
from pathlib import Path

import pytest

from assay.errors import StoreError
from assay.store import Store
from assay.web import value_cache
from assay.web.value_cache import (
    RunsKey,
    StillComputing,
    ValueCache,
    build_run_key,
    limit_wait,
)
from recorded_pages import record_run, ticket


def test_a_value_is_built_once() -> None:
    cache, built = ValueCache(max_results=10), []

    for _ in range(3):
        cache.get(("a",), lambda: built.append(1), results=5)

    assert built == [1]


def test_the_oldest_values_make_room() -> None:
    cache = ValueCache(max_results=10)
    built: list[str] = []
    for key in "abca":
        cache.get((key,), partial(built.append, key), results=5)

    assert built == ["a", "b", "c", "a"]


def test_one_value_is_kept_however_large() -> None:
    cache, built = ValueCache(max_results=10), []
    for _ in range(2):
        cache.get(("a",), lambda: built.append(1), results=500)

    assert built == [1]


def test_the_key_of_a_run_changes_with_its_results(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [ticket(1)])
        record_run(store, "b", [ticket(1)])
        keys = [build_run_key(store, store.run(run).row()) for run in "aab"]

    assert keys[0] == keys[1] != keys[2]


def test_a_value_that_takes_long_is_not_waited_for() -> None:
    cache, proceed, built = ValueCache(max_results=10), threading.Event(), []

    def build() -> str:
        built.append(1)
        assert proceed.wait(60)
        return "ready"

    for _ in range(2):
        with limit_wait(0), pytest.raises(StillComputing) as caught:
            cache.get(("a",), build, results=100_000)
        assert caught.value.results == 100_000
    proceed.set()

    # Programs wait until it is ready; it was built once for all requests.
    assert cache.get(("a",), build, results=100_000) == "ready"
    assert built == [1]


def test_a_failure_is_raised_and_not_kept() -> None:
    cache = ValueCache(max_results=10)

    def fail() -> str:
        raise StoreError("the store is locked")

    with pytest.raises(StoreError, match="the store is locked"):
        cache.get(("a",), fail, results=5)

    assert cache.get(("a",), lambda: "ready", results=5) == "ready"


def test_only_the_last_state_of_a_run_is_kept() -> None:
    cache = ValueCache(max_results=100)
    built: list[object] = []
    for recorded in range(50):
        key = RunsKey("run", recorded)
        cache.get(key, partial(built.append, recorded), results=10)
    for other in "abcdefghi":
        cache.get((other,), partial(built.append, other), results=10)

    assert cache.get(RunsKey("run", 49), lambda: built.append("again"), results=10) is None
    assert "again" not in built


def test_small_values_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_cache, "_MAX_VALUES", 3)
    cache = ValueCache(max_results=10)
    for number in range(20):
        cache.get((number,), lambda: "value", results=0)

    assert len(cache._kept) == 3


def test_a_value_counts_by_what_it_keeps() -> None:
    cache = ValueCache(max_results=10)
    built: list[str] = []
    for key in "abab":
        cache.get((key,), partial(built.append, key), results=1_000_000, cost=1)

    assert built == ["a", "b"]


def test_a_late_failure_leaves_the_next_computation_alone() -> None:
    cache, fail_now = ValueCache(max_results=10), threading.Event()
    built: list[object] = []

    def fail() -> str:
        assert fail_now.wait(60)
        raise StoreError("the store is locked")

    with limit_wait(0), pytest.raises(StillComputing):
        cache.get(RunsKey("run", 1), fail, results=100_000)
    running = cache._kept["run"].future
    cache.get(RunsKey("run", 2), lambda: built.append(2), results=1)
    fail_now.set()
    assert isinstance(running.exception(60), StoreError)

    cache.get(RunsKey("run", 2), lambda: built.append("again"), results=1)
    assert built == [2]


def test_few_values_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_cache, "_COMPUTING", threading.BoundedSemaphore(2))
    cache, proceed, running = ValueCache(max_results=10**9), threading.Event(), []
    both, most, lock = threading.Event(), [0], threading.Lock()

    def build() -> None:
        with lock:
            running.append(1)
            most[0] = max(most[0], len(running))
            if len(running) == 2:
                both.set()
        assert proceed.wait(60)
        with lock:
            running.pop()

    for number in range(8):
        with limit_wait(0), pytest.raises(StillComputing):
            cache.get((number,), build, results=100_000)
    assert both.wait(60)
    proceed.set()
    for number in range(8):
        cache.get((number,), build, results=100_000)

    assert most == [2]


def test_runs_of_the_same_id_in_two_stores_have_different_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Databases of one server may be called the same without their users.
    monkeypatch.setattr(Store, "where", "postgresql://server/assay")
    keys = []
    for folder in ("a", "b"):
        with Store.open(tmp_path / f"{folder}.db") as store:
            record_run(store, "run", [ticket(1)], created_at="2026-01-01T00:00:00+00:00")
            keys.append(build_run_key(store, store.run("run").row()).runs)

    assert keys[0] != keys[1]


def test_a_run_that_replaces_a_deleted_one_has_another_key(tmp_path: Path) -> None:
    keys = []
    with Store.open(tmp_path / "s.db") as store:
        for minute in range(2):
            created_at = f"2026-01-01T00:0{minute}:00+00:00"
            record_run(store, "run", [ticket(minute + 1)], created_at=created_at)
            keys.append(build_run_key(store, store.run("run").row()))
            store.delete_run("run")

    assert keys[0].runs == keys[1].runs
    assert keys[0].state != keys[1].state
