"""The benchmark of ingestion runs and prints figures that can be true."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "ingest.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_both_passes_meet_the_same_sessions_in_both_layouts() -> None:
    done = run("--sessions", "9,18", "--json")

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["ingest"]
    assert [(each["layout"], each["sessions"]) for each in figures] == [
        ("database", 9),
        ("database", 18),
        ("tree", 9),
        ("tree", 18),
    ]
    for each in figures:
        assert each["bare"]["sessions"] == each["assay"]["sessions"] == each["sessions"]
        assert each["assay"]["cpu_s"] > 0
        # An interpreter with the libraries in it, and not the machine's memory.
        assert 10e6 < each["bare"]["peak_bytes"] < each["assay"]["peak_bytes"] < 1e9


def test_a_person_is_shown_the_ratio_and_the_budget() -> None:
    done = run("--sessions", "9,18", "--layouts", "database")

    assert "CPU, times bare" in done.stdout
    assert "times the memory of the smallest, budget 1.2" in done.stdout


@pytest.mark.parametrize("wrong", [["--sessions", "0"], ["--layouts", "cloud"]])
def test_what_cannot_be_measured_is_refused(wrong: list[str]) -> None:
    done = run(*wrong)

    assert done.returncode == 2
    assert wrong[-1] in done.stderr
    assert "Traceback" not in done.stderr
