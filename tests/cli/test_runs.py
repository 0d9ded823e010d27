"""`assay runs` from the inside."""

import json
import sqlite3
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli import main as run_command
from assay.cli.runs import main
from assay.store import RunRow, Store
from assay.types import EvaluateResult, Sample
from opencode_archives import session, text, user, write_export
from recorded_runs import evaluated, record, samples, stopped
from store_runs import spec


def given(store: Path, **options: Any) -> Namespace:
    return Namespace(store=str(store), **{"limit": 20, "json": False, **options})


def test_each_run_is_two_lines_of_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "a.db"
    first = record(store, *samples(a=1.0, b=0.5, c=None, d="broken"), name="\x1b[2J" + "漢" * 60)
    second = record(store, *samples(a=1.0), name="second", stop=stopped())

    assert main(given(store)) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["status", "results", "judged", "mean", "failed", "cost"]
    assert lines[1] == f"{second}  second"
    assert lines[2].split()[:5] == ["interrupted", "0/1", "0", "none", "0"]
    assert lines[3].startswith(first)
    assert lines[4].split()[:6] == ["completed", "3/4", "2", "0.750", "1", "unknown"]
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("columns", "lines_each"), [(60, 2), (80, 2), (200, 1)])
def test_the_list_fits_and_uses_the_terminal(
    columns: int,
    lines_each: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    store = tmp_path / "a.db"
    runs = [record(store, *samples(a=0.25), name="漢" * 90) for _ in range(2)]

    main(given(store))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * lines_each
    assert columns - 1 <= max(map(cell_len, lines)) <= columns
    assert ("judged" in lines[0], "mean" in lines[0]) == (columns >= 80, True)
    assert lines[1].startswith(runs[1])
    assert "0.250" in lines[lines_each]


def test_the_mean_is_the_one_of_the_report_also_with_repeats_judged_unevenly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def score(sample: Sample) -> EvaluateResult:
        if sample.id == "b":
            return EvaluateResult(score=0.0)
        return EvaluateResult(score=1.0 if sample.rollout_id == "a#0" else None, reason="unclear")

    report = evaluated(tmp_path / "a.db", *samples(a=None, b=None), repeats=4, score_fn=score)

    main(given(tmp_path / "a.db"))
    line = capsys.readouterr().out.splitlines()[2]
    main(given(tmp_path / "a.db", json=True))
    (said,) = json.loads(capsys.readouterr().out)["runs"]

    assert report.mean == said["mean"] == 0.5
    assert line.split()[:4] == ["completed", "8/8", "5", "0.500"]


def test_older_runs_are_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "a.db"
    runs = [record(store, *samples(a=1.0)) for _ in range(3)]

    main(given(store, limit=2))
    printed = capsys.readouterr().out
    main(given(store, limit=2, json=True))
    said = json.loads(capsys.readouterr().out)

    assert printed.endswith("older runs are not shown; pass --limit to show more\n")
    assert runs[0] not in printed
    assert ([run["id"] for run in said["runs"]], said["more"]) == ([runs[2], runs[1]], True)
    assert said["runs"][0]["mean"] == 1.0


def test_a_store_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from assay.store import Store

    Store.open(tmp_path / "a.db").close()

    assert main(given(tmp_path / "a.db")) == 0
    assert (
        capsys.readouterr().out == "the store has no runs yet; `assay eval FILE.py` records one\n"
    )


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 opencode session "), (2, "2 opencode sessions ")]
)
def test_an_ingestion_is_listed_with_its_count_and_source(
    count: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "h"
    for number in range(count):
        write_export(folder / f"ses_{number}.json", session(user(text("Hi")), id=f"ses_{number}"))
    run_command(["ingest", "opencode", str(folder), "--store", str(store)])
    capsys.readouterr()

    main(given(store))
    line = capsys.readouterr().out.splitlines()[1]
    main(given(store, json=True))
    (said,) = json.loads(capsys.readouterr().out)["runs"]

    assert f"  {words}from " in line
    assert said["label"] == f"{words}from {folder}"


def test_an_ingestion_is_listed_with_title_date_and_project_of_its_first_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "h"
    for number in range(3):
        stored = session(
            user(text("Hi")),
            id=f"ses_{number}",
            title=f"Mend the fence {number}",
            directory="/srv/garden",
            time={"created": 1_794_832_100_000 + number},
        )
        write_export(folder / f"ses_{number}.json", stored)
    run_command(["ingest", "opencode", str(folder), "--store", str(store)])
    capsys.readouterr()

    main(given(store))
    lines = capsys.readouterr().out.splitlines()
    main(given(store, json=True))
    (said,) = json.loads(capsys.readouterr().out)["runs"]

    assert lines[3:] == ["  2026-11-16 12:28 | /srv/garden | Mend the fence 0 and 2 more"]
    assert said["first_session"]["title"] == "Mend the fence 0"
    assert said["first_session"]["directory"] == "/srv/garden"
    assert said["first_session"]["created"] == "2026-11-16T12:28:20Z"


def test_an_ingestion_without_a_session_has_no_line_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "h"
    write_export(folder / "ses_1.json", session(id="ses_1"))
    run_command(["ingest", "opencode", str(folder), "--store", str(store)])
    capsys.readouterr()

    main(given(store))

    assert len(capsys.readouterr().out.splitlines()) == 3


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

    assert run_command(["runs", "delete", gone, "--store", str(store)]) == 0

    assert capsys.readouterr().out == f"deleted {gone}  gone: 2 results\n"
    assert ids(store) == [kept]
    assert rows_of(store) == before


def test_the_store_may_be_named_before_the_action(store: Path, tmp_path: Path) -> None:
    gone = record(store, *samples(a=1.0))

    assert run_command(["runs", "--store", str(store), "--json", "delete", gone]) == 0

    assert ids(store) == []


def test_a_typo_in_one_id_deletes_no_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = record(store, *samples(a=1.0))

    assert run_command(["runs", "delete", first, "no-such-run", "--store", str(store)]) == 2

    assert "no-such-run" in capsys.readouterr().err
    assert ids(store) == [first]


def test_a_run_in_progress_is_not_deleted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(store) as opened:
        run = opened.start_run(spec("busy"))

        assert run_command(["runs", "delete", "busy", "--store", str(store)]) == 2
        assert run_command(["runs", "prune", "--keep", "0", "--yes", "--store", str(store)]) == 0
        said = capsys.readouterr()
        assert ids(store) == ["busy"]
        run.finish("interrupted")

    assert "run 'busy' cannot be deleted: it is in use by process" in said.err
    assert "no run was deleted" in said.out
    assert run_command(["runs", "delete", "busy", "--store", str(store)]) == 0
    assert ids(store) == []


def test_compacting_gives_the_space_back(store: Path) -> None:
    kept = record(store, *samples(a=1.0))
    gone = record(store, *samples(**{f"s{n}": 1.0 for n in range(400)}))
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = store.stat().st_size

    assert run_command(["runs", "delete", gone, "--compact", "--json", "--store", str(store)]) == 0

    assert store.stat().st_size < before / 2
    assert ids(store) == [kept]


def test_pruning_lists_first_and_deletes_with_yes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [record(store, *samples(a=1.0), name=name) for name in ("x", "x", "y", "x")]
    prune = ["runs", "prune", "--keep", "1", "--store", str(store)]

    assert run_command(prune) == 0
    said = capsys.readouterr().out
    assert ids(store) == made[::-1]
    assert run_command([*prune, "--yes", "--json"]) == 0

    assert said.endswith("2 runs would be deleted; pass --yes to delete them\n")
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["deleted"]] == made[1::-1]
    assert ids(store) == [made[3], made[2]]


def row(name: str, created_at: str) -> RunRow:
    described = spec(f"{name}-{created_at}", name=name, created_at=created_at)
    return RunRow(described, "completed", False, None, None, None)  # type: ignore[arg-type]


def test_age_name_and_number_bound_what_is_pruned() -> None:
    from assay.cli.runs import choose_runs

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

    assert run_command(["runs", "prune", "--yes", "--store", str(store)]) == 2

    assert "pass --older-than 30d, --keep 10, or both" in capsys.readouterr().err


def test_a_backup_is_a_store_for_its_owner_alone(store: Path, tmp_path: Path) -> None:
    run = record(store, *samples(a=1.0))
    copy = tmp_path / "copy.db"

    assert run_command(["runs", "backup", str(copy), "--store", str(store)]) == 0

    assert ids(copy) == [run]
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_backup_overwrites_no_file(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(a=1.0))
    there = tmp_path / "there.db"
    there.write_text("precious")

    assert run_command(["runs", "backup", str(there), "--store", str(store)]) == 2

    assert there.read_text() == "precious"
    assert "already exists" in capsys.readouterr().err
