"""The report of a certification: as text, and for GitHub Actions."""

import os
import textwrap
from pathlib import Path

from assay.certify import CertificationResult, CriterionOutcome, CriterionStatus, summary_markdown
from assay.stats import clean_text, escape_command, escape_command_property, format_number

from .certify_plan import format_threshold, format_usd
from .output import cut, format_fields, format_row, print_message, sanitize_to_line

# Of the columns name, value, threshold and interval: 14 of 80 are left for the outcome.
_OUTCOME_WIDTHS = (22, 10, 12, 18)
# A reason may quote a long answer of a model.
_MAX_ANNOTATION_CHARS = 1000


def format_certification(result: CertificationResult) -> list[str]:
    """Format a result in lines of at most 80 columns."""
    fields = {
        "agent": f"{result.agent.id}: {result.agent.runner}",
        "dataset": f"{result.dataset.uri}, {result.dataset.size}",
    }
    if result.judge is not None:
        returned = ", ".join(result.judge.returned) or "an unnamed model"
        fields["judge"] = f"{result.judge.asked}, answered by {returned}"
    if result.tries is not None:
        fields["tries"] = result.tries.words
    judge_cost = "none" if result.judge is None else format_usd(result.cost.judge_usd)
    latency, percentiles = result.latency, []
    for name in ("p50", "p95", "max"):
        value = getattr(latency, name)
        text = "unknown" if value is None else f"{value:.1f}"
        # A failed call has no end: with enough of them a percentile is infinite.
        percentiles.append(f"{name} {'never' if name in latency.infinite else text}")
    # Latency depends on how many calls ran at once, so it is never shown without it.
    failed = f", {latency.failed} failed" if latency.failed else ""
    fields["latency"] = f"{', '.join(percentiles)} ms at concurrency {latency.concurrency}{failed}"
    fields["cost"] = f"agent {format_usd(result.cost.agent_usd)}, judge {judge_cost}"
    heads = ("criterion", "value", "threshold", "interval", "outcome")
    lines = [
        *format_fields(fields, columns=66),
        "",
        format_row(heads, _OUTCOME_WIDTHS),
        *map(_format_criterion_outcome, result.outcomes),
    ]
    for outcome in result.outcomes:
        if outcome.status != "passed" or outcome.evidence != "proven":
            lines += textwrap.wrap(
                sanitize_to_line(f"{outcome.name}: {outcome.reason}"),
                80,
                initial_indent="  ",
                subsequent_indent="    ",
            )
    lines += [f"not certifiable: {reason}" for reason in result.deviations]
    lines += [cut(f"note: {notice.text}", 100) for notice in result.warnings]
    return [*lines, "", *format_fields({"verdict": result.verdict, "run": result.run}, columns=66)]


def _format_criterion_outcome(outcome: CriterionOutcome) -> str:
    known = outcome.lower is not None and outcome.upper is not None
    interval = f"{format_number(outcome.lower)}..{format_number(outcome.upper)}" if known else "-"
    if outcome.kind == "latency" and outcome.at_most is not None:
        interval = f"<= {format_number(outcome.at_most)}"
    value = "never" if "value" in outcome.infinite else format_number(outcome.value)
    status = f"{outcome.status}, {outcome.evidence}" if outcome.evidence else str(outcome.status)
    cells = (outcome.name, value, format_threshold(outcome), interval, status)
    return format_row(cells, _OUTCOME_WIDTHS)


def write_github_summary(result: CertificationResult, manifest: Path) -> None:
    """Append to the step summary and annotate missed criteria; outside of GitHub do nothing."""
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(summary_markdown(result))
        except OSError as error:
            # Not raised: the certification itself is complete.
            print_message(f"the step summary cannot be written: {error.strerror}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Annotations are attached to paths relative to the root of the checkout.
        workspace, whole = os.environ.get("GITHUB_WORKSPACE"), manifest.absolute()
        inside = workspace and whole.is_relative_to(workspace)
        path = whole.relative_to(workspace or "") if inside else manifest
        for line in format_criterion_annotations(result, path.as_posix()):
            print_message(line)


def format_criterion_annotations(result: CertificationResult, file: str) -> list[str]:
    """Return a workflow command for each criterion that is not met."""
    found = []
    for outcome in result.outcomes:
        if outcome.status is CriterionStatus.PASSED:
            continue
        kind = "error" if outcome.strict else "warning"
        title = escape_command_property(
            clean_text(f"{result.agent.id}: {outcome.name}", _MAX_ANNOTATION_CHARS)
        )
        text = escape_command(clean_text(outcome.reason, _MAX_ANNOTATION_CHARS))
        found.append(f"::{kind} file={escape_command_property(file)},title={title}::{text}")
    return found
