"""The reference page says what the docstrings say, of everything that users import."""

import re
import runpy
from pathlib import Path

import pytest

from public_names import PUBLIC

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
IMPORT = re.compile(r"^ *from (assay[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def private_imports(page: str) -> list[str]:
    """What a page imports, though the table of public names does not have it."""
    return [
        f"{module}.{name}"
        for module, names in IMPORT.findall(page)
        for name in re.findall(r"\w+", names)
        if name not in PUBLIC.get(module, "").split()
    ]


def test_the_reference_is_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "make_reference.py"))["build_pages"]()

    written = {
        str(path.relative_to(DOCS)): path.read_text("utf-8")
        for path in (DOCS / "reference.md", *(DOCS / "api").iterdir())
    }
    assert written == made, "run `make reference`"


def test_the_reference_has_fields_and_parameters_with_types_and_defaults() -> None:
    page = (DOCS / "api" / "assay.runner.md").read_text("utf-8")

    assert "| `repeats` | `int` | `1` | Rollouts of each sample. |" in page
    assert "| `dataset` | `Source \\| SampleStream` | required |" in page


def test_the_reference_has_every_module_that_users_import_from() -> None:
    units = runpy.run_path(str(DOCS / "make_reference.py"))["UNITS"]

    assert sorted(units) == sorted(PUBLIC)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_import_public_names_only(page: Path) -> None:
    assert private_imports(page.read_text("utf-8")) == []


def test_a_private_import_is_caught() -> None:
    page = "from assay import Sample\nfrom assay.scorers import (\n    Verse,\n)\n"
    page += "from assay.x import y"

    assert private_imports(page) == ["assay.scorers.Verse", "assay.x.y"]
