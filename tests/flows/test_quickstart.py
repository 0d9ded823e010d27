"""`assay quickstart` as a user runs it: a process, its output and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "assay", "quickstart"]


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def test_the_table_ends_with_the_mean_and_the_next_step(tmp_path: Path) -> None:
    done = run(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "mean score 0.69 [0.39, 0.91] over 13 judged samples; 1 not judged\nnext:\n" in done.stdout
    )
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_json_and_table_agree(tmp_path: Path) -> None:
    table, said = run(tmp_path).stdout, json.loads(run(tmp_path, "--json").stdout)

    low, high = said["interval"]
    mean = f"mean score {said['mean']:.2f} [{low:.2f}, {high:.2f}]"
    assert f"{mean} over {said['judged']} judged" in table
    assert all(each["id"] in table for each in said["samples"])
    assert all(each["reason"] for each in said["samples"])


def test_a_terminal_without_unicode_gets_a_table_too(tmp_path: Path) -> None:
    done = run(tmp_path, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "mean score" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        COMMAND, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            COMMAND, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )

    assert done.returncode == 3
    assert done.stderr.startswith("the results could not be written: ")


def test_a_wrong_option_exits_2(tmp_path: Path) -> None:
    done = run(tmp_path, "--jsn")

    assert (done.returncode, done.stdout) == (2, "")
    assert "unrecognized arguments: --jsn" in done.stderr
    assert "Traceback" not in done.stderr
