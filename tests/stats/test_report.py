"""Importing the unit is light: the numerical libraries wait for the first number."""

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_loads_no_numerical_library() -> None:
    loaded = loaded_by("import assay.stats")

    assert "assay" in loaded
    assert not {"numpy", "scipy"} & loaded


def test_the_first_interval_does() -> None:
    assert "scipy" in loaded_by("from assay.stats import mean_interval\nmean_interval([1.0])")
