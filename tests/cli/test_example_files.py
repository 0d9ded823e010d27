"""Examples in the package: a source tree and a wheel have them in the places that are searched."""

import tomllib
from pathlib import Path

import assay
from assay.cli import example_files
from assay.cli.example_files import list_examples

ROOT = Path(__file__).parents[2]


def test_a_source_tree_has_the_files_in_its_examples() -> None:
    assert list_examples("quickstart", "arith*.py") == [
        ROOT / "examples" / "quickstart" / "arithmetic.py"
    ]
    assert list_examples("no-such-folder", "*") == []


def test_a_wheel_has_the_files_where_they_are_looked_for_first() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    inside, package = example_files._EXAMPLE_FOLDERS[0], Path(assay.__file__).parent

    for folder in ("evals", "quickstart"):
        assert package.parent / included[f"examples/{folder}"] == inside / folder
