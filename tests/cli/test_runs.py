"""`assay runs` from the inside."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli import main as run_command
from assay.cli.runs import main
from assay.types import EvaluateResult, Sample
from opencode_archives import session, text, user, write_export
from recorded_runs import evaluated, record, samples, stopped


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
