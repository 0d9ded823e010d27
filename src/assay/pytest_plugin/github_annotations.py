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
    ]
    for record in records:
        (low, high), threshold = record.interval, record.threshold
        found = against.pop(record.test, None)
        cells = [
            escape_markdown(record.test),
            "none" if record.score is None else format_number(record.score),
            "" if low is None or high is None else f"{format_number(low)} to {format_number(high)}",
            f"{record.judged} of {record.results}",
            "" if threshold is None else format_number(threshold, beside=record.score),
            "" if found is None else escape_markdown(found.text),
        ]
        if not record.passed:
            cells.append(f"❌ {escape_markdown(record.reason)}".strip())
        else:
            # An expected failure passes, but the page must not show it as a plain success.
            cells.append("✅" if record.xfail is None else f"✅ {record.outcome}")
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    # The tests that are left are in the baseline only.
    for each in against.values():
        lines.append(f"- {escape_markdown(each.test)}: {escape_markdown(each.text)}")
    return "\n".join([*lines, *([""] if against else [])])


def annotate(records: Sequence[Record], *, root: Path) -> Iterator[str]:
    """Yield workflow commands that annotate each failure at its test."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    workspace = os.environ.get("GITHUB_WORKSPACE")
    for record in records:
        if record.passed:
            continue
        file, path = record.file, root / record.file
        # Annotations need paths relative to the checkout; pytest's root may be a folder inside it.
        if workspace and path.is_relative_to(workspace):
            file = path.relative_to(workspace).as_posix()
        text = f"{record.test}: {record.format_headline()}: {record.reason}"
        place = f"file={escape_command_property(file)},line={record.line}"
        yield f"::error {place}::{escape_command(text)}"
