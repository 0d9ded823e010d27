"""`assay runs delete`, `prune` and `backup`: what they remove, keep and refuse."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.cli import main
from assay.store import RunRow, Store
from recorded_runs import record, samples
from store_runs import spec


def ids(store: Path) -> list[str]:
    with Store.open(store, create=False) as opened:
        return [row.id for row in opened.runs()]


def rows_of(store: Path) -> dict[str, int]:
    """How many rows each table of the store has."""
    with sqlite3.connect(store) as database:
        names = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name.startswith("assay_") and name != "assay_schema_version"
        ]
        return {
            name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names
        }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def test_a_deleted_run_leaves_nothing_behind_and_others_alone(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = record(store, *samples(a=1.0, b="broken"), name="kept")
    before = rows_of(store)
    gone = record(store, *samples(a=1.0, b=0.0, c="broken"), name="gone")

    assert main(["runs", "delete", gone, "--store", str(store)]) == 0

    assert capsys.readouterr().out == f"deleted {gone}  gone: 2 results\n"
    assert ids(store) == [kept]
    assert rows_of(store) == before


def test_the_store_may_be_named_before_the_action(store: Path, tmp_path: Path) -> None:
    gone = record(store, *samples(a=1.0))

    assert main(["runs", "--store", str(store), "--json", "delete", gone]) == 0

    assert ids(store) == []


def test_a_typo_in_one_id_deletes_no_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = record(store, *samples(a=1.0))

    assert main(["runs", "delete", first, "no-such-run", "--store", str(store)]) == 2

    assert "no-such-run" in capsys.readouterr().err
    assert ids(store) == [first]


def test_a_run_in_progress_is_not_deleted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(store) as opened:
        run = opened.start_run(spec("busy"))

        assert main(["runs", "delete", "busy", "--store", str(store)]) == 2
        assert main(["runs", "prune", "--keep", "0", "--yes", "--store", str(store)]) == 0
        said = capsys.readouterr()
        assert ids(store) == ["busy"]
        run.finish("interrupted")

    assert "run 'busy' cannot be deleted: it is in use by process" in said.err
    assert "no run was deleted" in said.out
    assert main(["runs", "delete", "busy", "--store", str(store)]) == 0
    assert ids(store) == []


def test_compacting_gives_the_space_back(store: Path) -> None:
    kept = record(store, *samples(a=1.0))
    gone = record(store, *samples(**{f"s{n}": 1.0 for n in range(400)}))
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = store.stat().st_size

    assert main(["runs", "delete", gone, "--compact", "--json", "--store", str(store)]) == 0

    assert store.stat().st_size < before / 2
    assert ids(store) == [kept]


def test_pruning_lists_first_and_deletes_with_yes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [record(store, *samples(a=1.0), name=name) for name in ("x", "x", "y", "x")]
    prune = ["runs", "prune", "--keep", "1", "--store", str(store)]

    assert main(prune) == 0
    said = capsys.readouterr().out
    assert ids(store) == made[::-1]
    assert main([*prune, "--yes", "--json"]) == 0

    assert said.endswith("2 runs would be deleted; pass --yes to delete them\n")
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["deleted"]] == made[1::-1]
    assert ids(store) == [made[3], made[2]]


def row(name: str, created_at: str) -> RunRow:
    described = spec(f"{name}-{created_at}", name=name, created_at=created_at)
    return RunRow(described, "completed", False, None, None, None)  # type: ignore[arg-type]


def test_age_name_and_number_bound_what_is_pruned() -> None:
    from assay.cli.runs_prune import choose_runs

    rows = [row("x", f"2026-0{month}-01T00:00:00+00:00") for month in (4, 3, 2, 1)]
    rows.insert(2, row("y", "2026-01-15T00:00:00+00:00"))
    march = datetime(2026, 3, 1, tzinfo=UTC)

    assert choose_runs(rows, older_than=march, keep=None, name=None) == rows[2:]
    assert choose_runs(rows, older_than=march, keep=3, name="x") == rows[4:]
    assert choose_runs(rows, older_than=None, keep=2, name=None) == rows[3:]
    assert choose_runs(rows, older_than=None, keep=0, name="y") == [rows[2]]


def test_pruning_without_a_bound_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(a=1.0))

    assert main(["runs", "prune", "--yes", "--store", str(store)]) == 2

    assert "pass --older-than 30d, --keep 10, or both" in capsys.readouterr().err


def test_a_backup_is_a_store_for_its_owner_alone(store: Path, tmp_path: Path) -> None:
    run = record(store, *samples(a=1.0))
    copy = tmp_path / "copy.db"

    assert main(["runs", "backup", str(copy), "--store", str(store)]) == 0

    assert ids(copy) == [run]
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_backup_overwrites_no_file(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(a=1.0))
    there = tmp_path / "there.db"
    there.write_text("precious")

    assert main(["runs", "backup", str(there), "--store", str(store)]) == 2

    assert there.read_text() == "precious"
    assert "already exists" in capsys.readouterr().err
