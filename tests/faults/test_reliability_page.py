"""The page on reliability promises what these tests show, and nothing else."""

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "reliability.md"


def test_every_fault_test_is_on_the_page_and_every_promise_has_its_test() -> None:
    shown = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    written = {
        name
        for path in FOLDER.glob("test_*.py")
        if path.name != Path(__file__).name
        for each in ast.parse(path.read_text("utf-8")).body
        if isinstance(each, ast.FunctionDef) and (name := each.name).startswith("test_")
    }

    assert shown == written
