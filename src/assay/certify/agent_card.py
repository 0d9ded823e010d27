"""The agent card: a certification as a page of Markdown."""

from collections.abc import Iterable, Sequence

from assay.stats import escape_markdown, format_number, format_percent
from assay.types import AgentDefinition, InlineTool, RemoteTool

from .certified import CertificationResult
from .criteria import CriterionOutcome, CriterionStatus, LatencyFigures

# Characters of one text of the manifest. Longer texts end with a `…`.
_MAX_CARD_TEXT = 4000

_VERDICT_MARKS = {"PASSED": "✅", "WARNED": "⚠️", "FAILED": "❌", "ERROR": "❔"}


def card_markdown(result: CertificationResult, definition: AgentDefinition | None = None) -> str:
    """Render the whole card."""
    # Texts of the manifest and of models are escaped: a card must not run their markup.
    lines = [
        f"# {escape_markdown(result.agent.name)}",
        "",
        *_render_verdict(result),
        "",
        *_render_markdown_table(("agent", ""), _collect_agent_rows(result, definition)),
        "",
        "## Criteria",
        "",
        *render_criteria_table(result.outcomes),
        "",
        *(
            f"- {_truncate_markdown(f'{each.name}: {each.description}')}"
            for each in result.outcomes
        ),
        "",
        "## Response times",
        "",
        *_render_latency_table(result.latency),
        "",
        "## How it was measured",
        "",
        *_render_markdown_table(("", ""), _collect_run_rows(result)),
    ]
    if result.warnings:
        lines += [
            "",
            "## Notes",
            "",
            *(f"- {escape_markdown(each.text)}" for each in result.warnings),
        ]
    return "\n".join([*lines, ""])


def summary_markdown(result: CertificationResult) -> str:
    """Render the verdict and the criteria, for the summary page of a CI job."""
    name = escape_markdown(result.agent.id)
    lines = [f"### Certification of {name}", "", *_render_verdict(result), ""]
    return "\n".join([*lines, *render_criteria_table(result.outcomes), "", ""])


def render_criteria_table(outcomes: Sequence[CriterionOutcome]) -> list[str]:
    """Render one row for each criterion, with all figures that decide it."""
    head = ("criterion", "value", "bar", "strict", "interval", "evidence", "samples", "outcome")
    return _render_markdown_table(head, (_render_criterion_row(outcome) for outcome in outcomes))


def _render_verdict(result: CertificationResult) -> list[str]:
    lines = [f"{_VERDICT_MARKS[result.verdict]} **{result.verdict}**"]
    if result.deviations:
        reasons = "; ".join(result.deviations)
        lines += ["", f"Not certifiable: {escape_markdown(reasons)}"]
    return lines


def _render_criterion_row(outcome: CriterionOutcome) -> tuple[str, ...]:
    sign = "≥" if outcome.direction == "max" else "≤"
    passed = outcome.status is CriterionStatus.PASSED
    mark = "✅" if passed else "❌" if outcome.strict else "⚠️"
    left_out = f", {outcome.unscored} unscored" if outcome.unscored else ""
    errors = f", {outcome.agent_errors} agent errors" if outcome.agent_errors else ""
    return (
        escape_markdown(outcome.name),
        "never"
        if "value" in outcome.infinite
        else format_number(outcome.value, beside=outcome.threshold),
        f"{sign} {outcome.threshold:g}{' ms' if outcome.kind == 'latency' else ''}",
        "yes" if outcome.strict else "no",
        _format_interval(outcome),
        f"{outcome.evidence or 'none'} at {format_percent(outcome.confidence)}, "
        f"gate {outcome.gate}",
        f"{outcome.samples}{left_out}{errors}",
        f"{mark} {escape_markdown(outcome.reason)}",
    )


def _format_interval(outcome: CriterionOutcome) -> str:
    if outcome.lower is not None and outcome.upper is not None:
        return f"{format_number(outcome.lower)} to {format_number(outcome.upper)}"
    if outcome.at_most is not None:
        return f"at most {format_number(outcome.at_most)}"
    return ""


def _collect_agent_rows(
    result: CertificationResult, definition: AgentDefinition | None
) -> list[tuple[str, str]]:
    agent = result.agent
    rows = [("id", agent.id), ("model", agent.model or "not named")]
    if definition is not None:
        rows += [("role", definition.role), ("goal", definition.goal)]
        tools = ", ".join(_get_manifest_tool_name(tool) for tool in definition.tools)
        optional = {
            "description": definition.description,
            "backstory": definition.backstory,
            "tools": tools,
            "skills": ", ".join(definition.skills),
            "knowledge": ", ".join(definition.knowledge),
        }
        rows += [(name, text) for name, text in optional.items() if text]
    rows += [
        ("definition", f"sha256:{agent.definition_sha256}"),
        ("tested as", agent.runner),
        ("answered by", ", ".join(agent.models_returned) or "not reported"),
    ]
    if agent.runner_sha256 is not None:
        rows.append(("its code", f"sha256:{agent.runner_sha256}"))
    return [(name, _truncate_markdown(text)) for name, text in rows]


def _truncate_markdown(text: str) -> str:
    return escape_markdown(text, _MAX_CARD_TEXT)


def _get_manifest_tool_name(tool: str | RemoteTool | InlineTool) -> str:
    if isinstance(tool, str):
        return tool
    return tool.name if isinstance(tool, InlineTool) else tool.uri


def _collect_run_rows(result: CertificationResult) -> list[tuple[str, str]]:
    judge = result.judge
    agent_cost = _format_usd_or_unknown(result.cost.agent_usd)
    judge_cost = "none" if judge is None else _format_usd_or_unknown(result.cost.judge_usd)
    rows = [
        ("dataset", f"{result.dataset.uri}, {result.dataset.size}"),
        ("dataset digest", f"sha256:{result.dataset.sha256}"),
        ("judge", "none: code measures everything" if judge is None else judge.asked),
    ]
    if judge is not None:
        rows.append(("judged by", ", ".join(judge.returned) or "not reported"))
    rows += [
        (f"{each.name}", f"{each.graded_by.by} {each.graded_by.name}") for each in result.outcomes
    ]
    rows += [
        ("repeats", str(result.repeats)),
        ("seed", "none" if result.seed is None else str(result.seed)),
        ("manifest", f"{result.manifest.path}, sha256:{result.manifest.sha256}"),
        ("run", result.run),
        ("measured", f"{result.started:%Y-%m-%d %H:%M} to {result.finished:%Y-%m-%d %H:%M} UTC"),
        ("cost", f"agent {agent_cost}, judge {judge_cost}"),
        ("versions", ", ".join(f"{name} {each}" for name, each in result.versions.items())),
    ]
    return [(escape_markdown(name), escape_markdown(text)) for name, text in rows]


def _render_latency_table(latency: LatencyFigures) -> list[str]:
    names = ("p50", "p90", "p95", "p99", "max", "mean")
    values = tuple(
        "never" if name in latency.infinite else format_number(getattr(latency, name))
        for name in names
    )
    counts = (
        f"{latency.samples} calls at concurrency {latency.concurrency}, {latency.failed} failed, "
        f"{latency.cached} cached, {latency.warmup} to warm up"
    )
    return [
        *_render_markdown_table(tuple(f"{name} ms" for name in names), [values]),
        "",
        f"{counts}. The limit applies to the {latency.statistic}.",
    ]


def _render_markdown_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _format_usd_or_unknown(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"
