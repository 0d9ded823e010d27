"""The benchmark of environments runs every path. How fast anything is, is not tested."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "environments.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=120
    )


def test_every_path_is_measured_beside_the_references() -> None:
    done = run("--loads", "2:5", "--rounds", "1", "--json")

    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    figures = {each["path"]: each for each in printed["figures"]}
    assert set(figures) == {"in process", "own", "mcp", "openenv"}
    for path, each in figures.items():
        assert (each["sessions"], each["steps"]) == (2, 10)
        assert each["steps_per_s"] > 0
        assert each["client_ms"] > 0
        assert path != "in process" or each["server_ms"] is None
    assert printed["reference"]


def test_a_load_that_cannot_be_measured_is_refused() -> None:
    done = run("--loads", "1:100")

    assert done.returncode == 2
    assert "invalid" in done.stderr
