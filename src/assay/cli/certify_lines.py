"""The result of a certification in words."""

import textwrap

from assay.certify import CertificationResult, CriterionOutcome, LatencyFigures
from assay.stats import format_number

from .certify_plan import format_threshold
from .terminal import cut, pad, sanitize_to_line

_CRITERION_WIDTH, _VALUE_WIDTH, _THRESHOLD_WIDTH, _INTERVAL_WIDTH = 22, 10, 12, 18


def format_certification(result: CertificationResult) -> list[str]:
    """A result in lines of at most 80 columns."""
    lines = [
        _format_certification_line("agent", f"{result.agent.id}: {result.agent.runner}"),
        _format_certification_line("dataset", f"{result.dataset.uri}, {result.dataset.size}"),
    ]
    if result.judge is not None:
        returned = ", ".join(result.judge.returned) or "it does not say"
        lines.append(
            _format_certification_line("judge", f"{result.judge.asked}, answered by {returned}")
        )
    if result.tries is not None:
        lines.append(_format_certification_line("tries", result.tries.words))
    lines += [
        _format_certification_line("latency", _format_latency(result.latency)),
        _format_certification_line(
            "cost",
            f"agent {_format_spent_usd(result.cost.agent_usd)}, judge {_format_spent_on_judge(result)}",
        ),
        "",
        _format_outcome_row("criterion", "value", "bar", "interval", "outcome"),
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
    lines += [f"rehearsal: {reason}; no certificate" for reason in result.rehearsal]
    lines += [cut(f"note: {notice.text}", 100) for notice in result.warnings]
    lines += [
        "",
        _format_certification_line("verdict", result.verdict),
        _format_certification_line("run", result.run),
    ]
    return lines


def _format_criterion_outcome(outcome: CriterionOutcome) -> str:
    known = outcome.lower is not None and outcome.upper is not None
    interval = f"{format_number(outcome.lower)}..{format_number(outcome.upper)}" if known else "-"
    if outcome.kind == "latency" and outcome.at_most is not None:
        interval = f"<= {format_number(outcome.at_most)}"
    value = "never" if "value" in outcome.infinite else format_number(outcome.value)
    said = f"{outcome.status}, {outcome.evidence}" if outcome.evidence else str(outcome.status)
    return _format_outcome_row(outcome.name, value, format_threshold(outcome), interval, said)


def _format_outcome_row(name: str, value: str, bar: str, interval: str, said: str) -> str:
    cells = (
        pad(name, _CRITERION_WIDTH),
        pad(value, _VALUE_WIDTH),
        pad(bar, _THRESHOLD_WIDTH),
        pad(interval, _INTERVAL_WIDTH),
        said,
    )
    return " ".join(cells).rstrip()


def _format_latency(latency: LatencyFigures) -> str:
    shown = ", ".join(
        f"{name} {'never' if name in latency.infinite else _format_latency_ms(getattr(latency, name))}"
        for name in ("p50", "p95", "max")
    )
    failed = f", {latency.failed} failed" if latency.failed else ""
    return f"{shown} ms at concurrency {latency.concurrency}{failed}"


def _format_latency_ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _format_spent_on_judge(result: CertificationResult) -> str:
    return "none" if result.judge is None else _format_spent_usd(result.cost.judge_usd)


def _format_spent_usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


def _format_certification_line(label: str, text: str) -> str:
    return f"{label:<14}{cut(text, 66)}"
