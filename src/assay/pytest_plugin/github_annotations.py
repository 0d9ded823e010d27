"""What GitHub Actions shows: a table on the run's page, and annotations beside the code."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.stats import command_property, command_text, markdown_text, number

from .baseline import TestComparison
from .evaluation_record import Record


def write_step_summary(records: Sequence[Record], comparisons: Sequence[TestComparison]) -> None:
    """Append a Markdown table to the step summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(markdown(records, comparisons))


def markdown(records: Sequence[Record], comparisons: Sequence[TestComparison]) -> str:
    """The table: one line for each test."""
    against = {comparison.test: comparison for comparison in comparisons}
    lines = [
        "### Evaluations",
        "",
        "| test | score | interval | judged | threshold | baseline | |",
        "|---|---|---|---|---|---|---|",
        *(_row(record, against.pop(record.test, None)) for record in records),
        "",
    ]
    rest = [f"- {markdown_text(each.test)} {markdown_text(each.text)}" for each in against.values()]
    return "\n".join([*lines, *rest, *([""] if rest else [])])


def _row(record: Record, found: TestComparison | None) -> str:
    low, high = record.interval
    cells = [
        markdown_text(record.test),
        "none" if record.score is None else number(record.score),
        "" if low is None or high is None else f"{number(low)} to {number(high)}",
        f"{record.judged} of {record.results}",
        "" if record.threshold is None else number(record.threshold, beside=record.score),
        "" if found is None else markdown_text(found.text),
        _mark(record),
    ]
    return f"| {' | '.join(cells)} |"


def _mark(record: Record) -> str:
    if not record.passed:
        return f"❌ {markdown_text(record.reason)}".strip()
    return "✅" if record.xfail is None else f"✅ {record.outcome}"


def annotate(records: Sequence[Record], *, root: Path) -> Iterator[str]:
    """Workflow commands that put each failure beside its test."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for record in records:
        if not record.passed:
            yield _error(record, f"{record.headline()}: {record.reason}", root)


def _error(record: Record, text: str, root: Path) -> str:
    file = command_property(_in_repository(record.file, root))
    return f"::error file={file},line={record.line}::{command_text(f'{record.test}: {text}')}"


def _in_repository(file: str, root: Path) -> str:
    """A path from the top of the checkout, which is what annotations are attached to."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    path = root / file
    if workspace and path.is_relative_to(workspace):
        return path.relative_to(workspace).as_posix()
    return file
