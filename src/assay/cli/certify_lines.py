"""The result of a certification in words."""

import textwrap

from assay.certify import CertificationResult, CriterionOutcome, LatencyFigures
from assay.stats import number

from .certify_plan import bar_words
from .terminal import cut, padded, plain

_NAME, _VALUE, _BAR, _INTERVAL = 22, 10, 12, 18


def result_lines(result: CertificationResult) -> list[str]:
    """A result in lines of at most 80 columns."""
    lines = [
        _line("agent", f"{result.agent.id}: {result.agent.runner}"),
        _line("dataset", f"{result.dataset.uri}, {result.dataset.size}"),
    ]
    if result.judge is not None:
        returned = ", ".join(result.judge.returned) or "it does not say"
        lines.append(_line("judge", f"{result.judge.asked}, answered by {returned}"))
    if result.tries is not None:
        lines.append(_line("tries", result.tries.words))
    lines += [
        _line("latency", _latency_words(result.latency)),
        _line("cost", f"agent {_dollars(result.cost.agent_usd)}, judge {_judge_cost(result)}"),
        "",
        _row("criterion", "value", "bar", "interval", "outcome"),
        *(_outcome_row(outcome) for outcome in result.outcomes),
    ]
    for outcome in result.outcomes:
        if outcome.status != "passed" or outcome.evidence != "proven":
            lines += textwrap.wrap(
                plain(f"{outcome.name}: {outcome.reason}"),
                80,
                initial_indent="  ",
                subsequent_indent="    ",
            )
    lines += [f"rehearsal: {reason}; no certificate" for reason in result.rehearsal]
    lines += [cut(f"note: {notice.text}", 100) for notice in result.warnings]
    lines += ["", _line("verdict", result.verdict), _line("run", result.run)]
    return lines


def _outcome_row(outcome: CriterionOutcome) -> str:
    known = outcome.lower is not None and outcome.upper is not None
    interval = f"{number(outcome.lower)}..{number(outcome.upper)}" if known else "-"
    if outcome.kind == "latency" and outcome.at_most is not None:
        interval = f"<= {number(outcome.at_most)}"
    value = "never" if "value" in outcome.infinite else number(outcome.value)
    said = f"{outcome.status}, {outcome.evidence}" if outcome.evidence else str(outcome.status)
    return _row(outcome.name, value, bar_words(outcome), interval, said)


def _row(name: str, value: str, bar: str, interval: str, said: str) -> str:
    cells = (
        padded(name, _NAME),
        padded(value, _VALUE),
        padded(bar, _BAR),
        padded(interval, _INTERVAL),
        said,
    )
    return " ".join(cells).rstrip()


def _latency_words(latency: LatencyFigures) -> str:
    shown = ", ".join(
        f"{name} {'never' if name in latency.infinite else _ms(getattr(latency, name))}"
        for name in ("p50", "p95", "max")
    )
    failed = f", {latency.failed} failed" if latency.failed else ""
    return f"{shown} ms at concurrency {latency.concurrency}{failed}"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _judge_cost(result: CertificationResult) -> str:
    return "none" if result.judge is None else _dollars(result.cost.judge_usd)


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


def _line(label: str, text: str) -> str:
    return f"{label:<14}{cut(text, 66)}"
