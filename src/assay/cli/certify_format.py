"""The report of a certification as text."""

import textwrap

from assay.certify import CertificationResult, CriterionOutcome, LatencyFigures
from assay.stats import format_number

from .certify_plan import format_threshold
from .output import cut, format_field, pad, sanitize_to_line

# With the gaps 66 columns, which leaves 14 for the status within 80.
_CRITERION_WIDTH, _VALUE_WIDTH, _THRESHOLD_WIDTH, _INTERVAL_WIDTH = 22, 10, 12, 18


def format_certification(result: CertificationResult) -> list[str]:
    """Format a result in lines of at most 80 columns."""
    lines = [
        _format_line("agent", f"{result.agent.id}: {result.agent.runner}"),
        _format_line("dataset", f"{result.dataset.uri}, {result.dataset.size}"),
    ]
    if result.judge is not None:
        returned = ", ".join(result.judge.returned) or "an unnamed model"
        lines.append(_format_line("judge", f"{result.judge.asked}, answered by {returned}"))
    if result.tries is not None:
        lines.append(_format_line("tries", result.tries.words))
    judge_cost = "none" if result.judge is None else _format_usd(result.cost.judge_usd)
    lines += [
        _format_line("latency", _format_latency(result.latency)),
        _format_line("cost", f"agent {_format_usd(result.cost.agent_usd)}, judge {judge_cost}"),
        "",
        _format_outcome_row("criterion", "value", "threshold", "interval", "outcome"),
        *(_format_criterion_outcome(outcome) for outcome in result.outcomes),
    ]
    for outcome in result.outcomes:
        if outcome.status != "passed" or outcome.evidence != "proven":
            lines += textwrap.wrap(
                sanitize_to_line(f"{outcome.name}: {outcome.reason}"),
                80,
                initial_indent="  ",
                subsequent_indent="    ",
            )
    lines += [f"not certifiable: {reason}" for reason in result.rehearsal]
    lines += [cut(f"note: {notice.text}", 100) for notice in result.warnings]
    lines += [
        "",
        _format_line("verdict", result.verdict),
        _format_line("run", result.run),
    ]
    return lines


def _format_criterion_outcome(outcome: CriterionOutcome) -> str:
    known = outcome.lower is not None and outcome.upper is not None
    interval = f"{format_number(outcome.lower)}..{format_number(outcome.upper)}" if known else "-"
    if outcome.kind == "latency" and outcome.at_most is not None:
        interval = f"<= {format_number(outcome.at_most)}"
    value = "never" if "value" in outcome.infinite else format_number(outcome.value)
    status = f"{outcome.status}, {outcome.evidence}" if outcome.evidence else str(outcome.status)
    return _format_outcome_row(outcome.name, value, format_threshold(outcome), interval, status)


def _format_outcome_row(name: str, value: str, threshold: str, interval: str, status: str) -> str:
    cells = (
        pad(name, _CRITERION_WIDTH),
        pad(value, _VALUE_WIDTH),
        pad(threshold, _THRESHOLD_WIDTH),
        pad(interval, _INTERVAL_WIDTH),
        status,
    )
    return " ".join(cells).rstrip()


def _format_latency(latency: LatencyFigures) -> str:
    parts = []
    for name in ("p50", "p95", "max"):
        value = getattr(latency, name)
        text = "unknown" if value is None else f"{value:.1f}"
        # A failed call has no end: with enough of them a percentile is infinite.
        parts.append(f"{name} {'never' if name in latency.infinite else text}")
    failed = f", {latency.failed} failed" if latency.failed else ""
    return f"{', '.join(parts)} ms at concurrency {latency.concurrency}{failed}"


def _format_usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


def _format_line(label: str, text: str) -> str:
    return format_field(label, text, columns=66)
