"""Where commands look for a store."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from assay.cli.store_option import (
    add_store_option,
    find_store_location,
    open_store,
)
from assay.errors import StoreError
from assay.store import Store


def given(*words: str) -> Namespace:
    parser = ArgumentParser()
    add_store_option(parser)
    return parser.parse_args(words)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)


def test_the_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_store_location(given()) is None

    monkeypatch.setenv("ASSAY_HOME", "state")
    assert find_store_location(given()) == Path("state/assay.db")

    monkeypatch.setenv("ASSAY_STORE", "postgresql://db/team")
    assert find_store_location(given()) == "postgresql://db/team"

    assert find_store_location(given("--store", "own.db")) == "own.db"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_STORE", "")
    monkeypatch.setenv("ASSAY_HOME", "")

    assert find_store_location(given()) is None


def test_reading_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the store does not exist"):
        open_store(given("--store", str(tmp_path / "none.db")))

    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_project_stands_for_its_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / ".assay" / "assay.db") as store:
        made = store.where

    for place in (tmp_path, tmp_path / ".assay", tmp_path / ".assay" / "assay.db"):
        with open_store(given("--store", str(place))) as store:
            assert store.where == made


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the store does not exist"):
        open_store(given("--store", str(tmp_path)))
