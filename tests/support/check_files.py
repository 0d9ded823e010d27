"""Check files and conversations in one line, for the tests of checks."""

from pathlib import Path
from typing import Any

from assay.scorers import checks_from
from assay.types import Metric, Sample
from make import answered, asked, called, said, sample


def session(**fields: Any) -> Sample:
    """Two user turns; two calls of `read` and one of `edit`, which failed."""
    failed = answered("no such line", "c3").model_copy(
        update={"details": {"failed": True, "is_error": True}}
    )
    fine = {"details": {"failed": False}}
    return sample(
        asked("Fix the typo in notes.txt"),
        said("I look first.", called("read", "c1", path="notes.txt", limit=10)),
        answered('{"lines": 2, "text": "helo"}', "c1").model_copy(update=fine),
        said(None, called("read", "c2", path="src/a.py"), called("edit", "c3", path="notes.txt")),
        answered("print()", "c2").model_copy(update=fine),
        failed,
        said("It is fixed."),
        asked("Sure?").model_copy(),
        said("Not quite: 3 errors remain."),
        **{"id": "fix", **fields},
    )


def judged(check: dict[str, Any], given: Sample | None = None) -> Metric:
    """The metric that one check comes to."""
    result = checks_from({"checks": [{"name": "it", **check}]})(given or session())
    return result.metrics["it"]


def verdict(check: dict[str, Any], given: Sample | None = None) -> bool | None:
    """Whether one check passes; None when it was not judged."""
    metric = judged(check, given)
    return None if metric.score is None else metric.score == 1.0


def written(folder: Path, text: str, name: str = "checks.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
