"""Kept values: built once, built again after a change, and limited in size."""

import threading
from functools import partial
from pathlib import Path

import pytest

from assay.errors import StoreError
from assay.store import Store
from assay.web.value_cache import StillComputing, ValueCache, build_run_key, limit_wait
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
