"""`assay runs` from the inside."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli.runs import main
from recorded_runs import record, samples, stopped


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
    assert lines[0].split()[:6] == ["status", "samples", "judged", "mean", "failed", "cost"]
    assert lines[1] == f"{second}  second"
    assert lines[2].split()[:5] == ["interrupted", "0/1", "0", "none", "0"]
    assert lines[3].startswith(first)
    assert lines[4].split()[:6] == ["completed", "3/4", "2", "0.750", "1", "unknown"]
    assert max(map(cell_len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_older_runs_are_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "a.db"
    runs = [record(store, *samples(a=1.0)) for _ in range(3)]

    main(given(store, limit=2))
    printed = capsys.readouterr().out
    main(given(store, limit=2, json=True))
    said = json.loads(capsys.readouterr().out)

    assert printed.endswith("and older ones: --limit shows more\n")
    assert runs[0] not in printed
    assert ([run["id"] for run in said["runs"]], said["more"]) == ([runs[2], runs[1]], True)
    assert said["runs"][0]["mean"] == 1.0


def test_a_store_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from assay.record import Store

    Store.open(tmp_path / "a.db").close()

    assert main(given(tmp_path / "a.db")) == 0
    assert capsys.readouterr().out == "there are no runs yet: `assay eval FILE.py` makes one\n"
