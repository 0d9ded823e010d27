"""Where something was raised: the innermost line of a user's own code."""

import traceback
from pathlib import Path

import pytest

from assay.errors import ScorerFault
from assay.pytest_plugin.source_lines import find_place
from assay.types import EvaluateResult


def raised_by(folder: Path, code: str) -> str:
    path = folder / "scorer.py"
    path.write_text(code)
    try:
        exec(compile(code, str(path), "exec"), {"EvaluateResult": EvaluateResult})
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


def test_it_is_the_innermost_frame_outside_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert find_place(raised_by(tmp_path, "1\n1 / 0")) == "scorer.py:2"
    assert find_place(raised_by(tmp_path, "import json\njson.loads('{')")) == "scorer.py:2"
    assert find_place(raised_by(tmp_path, "EvaluateResult(score='x')")) == "scorer.py:1"


def test_without_code_of_the_user_there_is_none() -> None:
    assert find_place(None) is None
    assert find_place("".join(traceback.format_exception(ScorerFault("no")))) is None
