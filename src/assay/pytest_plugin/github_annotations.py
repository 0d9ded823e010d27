"""Output for GitHub Actions: a table on the run's page, and annotations beside the code."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.stats import escape_command, escape_command_property, escape_markdown, format_number

from .baseline import TestComparison
from .evaluation_record import Record


def write_step_summary(records: Sequence[Record], comparisons: Sequence[TestComparison]) -> None:
    """Append a Markdown table to the step summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(render_step_summary(records, comparisons))


def render_step_summary(records: Sequence[Record], comparisons: Sequence[TestComparison]) -> str:
    """Return the Markdown table, with one line for each test."""
    against = {comparison.test: comparison for comparison in comparisons}
    lines = [
        "### Evaluations",
        "",
        "| test | score | interval | judged | threshold | baseline | |",
        "|---|---|---|---|---|---|---|",
        *(_format_summary_row(record, against.pop(record.test, None)) for record in records),
        "",
    ]
    rest = [
        f"- {escape_markdown(each.test)}: {escape_markdown(each.text)}" for each in against.values()
    ]
    return "\n".join([*lines, *rest, *([""] if rest else [])])


def _format_summary_row(record: Record, found: TestComparison | None) -> str:
    low, high = record.interval
    cells = [
        escape_markdown(record.test),
        "none" if record.score is None else format_number(record.score),
        "" if low is None or high is None else f"{format_number(low)} to {format_number(high)}",
        f"{record.judged} of {record.results}",
        "" if record.threshold is None else format_number(record.threshold, beside=record.score),
        "" if found is None else escape_markdown(found.text),
        _format_outcome_cell(record),
    ]
    return f"| {' | '.join(cells)} |"


def _format_outcome_cell(record: Record) -> str:
    if not record.passed:
        return f"❌ {escape_markdown(record.reason)}".strip()
    return "✅" if record.xfail is None else f"✅ {record.outcome}"


def annotate(records: Sequence[Record], *, root: Path) -> Iterator[str]:
    """Yield workflow commands that annotate each failure at its test."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for record in records:
        if not record.passed:
            file = escape_command_property(_resolve_annotation_path(record.file, root))
            text = f"{record.test}: {record.format_headline()}: {record.reason}"
            yield f"::error file={file},line={record.line}::{escape_command(text)}"


def _resolve_annotation_path(file: str, root: Path) -> str:
    # Annotations need paths relative to the checkout; pytest's root may be a folder inside it.
    workspace = os.environ.get("GITHUB_WORKSPACE")
    path = root / file
    if workspace and path.is_relative_to(workspace):
        return path.relative_to(workspace).as_posix()
    return file
