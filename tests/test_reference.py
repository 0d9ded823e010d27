"""The reference page says what the docstrings say."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_reference_is_what_the_docstrings_say() -> None:
    made = runpy.run_path(str(DOCS / "make_reference.py"))["reference"]()

    written = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert written == made, "run `make reference`"
