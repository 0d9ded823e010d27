"""Kept values: built once, built again after a change, and limited in size."""

from functools import partial
from pathlib import Path

from assay.store import Store
from assay.web.value_cache import ValueCache, build_run_key
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
