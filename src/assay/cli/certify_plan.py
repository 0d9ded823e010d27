"""`assay certify plan`: the calls, criteria and cost of a certification. Makes no calls."""

import asyncio
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.certify import (
    CertificationPlan,
    CertifiedManifest,
    PlannedCriterion,
    PlanReport,
    ResolvedCriterion,
    plan_certifications,
    report_plan,
)

from .certify_options import add_certify_options, build_certify_settings
from .exit_status import EXIT_PASS
from .output import (
    cut,
    format_field,
    pad,
    print_report,
    redirect_output_to_stderr,
)

_PLAN_NAME_WIDTH, _PLAN_GRADER_WIDTH, _PLAN_THRESHOLD_WIDTH, _PLAN_NEEDED_WIDTH = 18, 24, 11, 24


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    add_certify_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status: 0 the certification can be run, 2 usage error or invalid manifest."""
    # User modules may print when they are imported; stdout is for the report.
    with TemporaryDirectory(prefix="assay-") as folder, redirect_output_to_stderr():
        plans = plan_certifications(
            args.manifest, build_certify_settings(args), agent=args.agent, folder=Path(folder)
        )
        reports = [report_plan(plan) for plan in plans]
        # A plan has clients with open connections.
        asyncio.run(_close_plans(plans))
    texts = ["\n".join(format_plan(report)) for report in reports]
    texts += format_skipped_agents(reports[0].manifest)
    plain = {"plans": [json.loads(report.model_dump_json()) for report in reports]}
    print_report(args, ["\n\n".join(texts)], plain)
    return EXIT_PASS


async def _close_plans(plans: tuple[CertificationPlan, ...]) -> None:
    for plan in plans:
        await plan.close()


def format_skipped_agents(manifest: CertifiedManifest) -> list[str]:
    """Return the agents of a manifest that are skipped, as one text; empty if there are none."""
    lines = [_format_line("skipped", f"{key}: {why}") for key, why in manifest.skipped.items()]
    return ["\n".join(lines)] if lines else []


def format_plan(report: PlanReport) -> list[str]:
    """Format a plan in lines of at most 80 columns."""
    calls = f"{report.agent_calls} of the agent, {report.warmup} more to warm up"
    if report.judge is not None:
        calls += f"; {report.judge_calls} of the judge"
    judge = "none" if report.judge is None else _format_minimum_usd(report.judge_usd_at_least)
    lines = [
        _format_line("agent", f"{report.agent}: {report.runner}"),
        _format_line("dataset", f"{report.dataset.uri}, {report.dataset.size}"),
        _format_line("judge", report.judge or "none: code measures everything"),
        _format_line("calls", calls),
        _format_line(
            "cost", f"agent {_format_minimum_usd(report.agent_usd_at_least)}, judge {judge}"
        ),
        "",
        _format_plan_row("criterion", "graded by", "threshold", "to prove it"),
    ]
    for each in report.criteria:
        graded = f"{each.graded_by.by} {each.graded_by.name}"
        lines.append(
            _format_plan_row(each.name, graded, format_threshold(each), _format_rows_needed(each))
        )
    lines += [f"not certifiable: {reason}" for reason in report.rehearsal]
    lines += [f"note: {notice.text}" for notice in report.warnings]
    return lines


def _format_rows_needed(planned: PlannedCriterion) -> str:
    if planned.rows_needed is None:
        return "not provable"
    words = f"{planned.rows_needed} samples"
    return words if planned.provable else f"{words}: too few"


def format_threshold(criterion: ResolvedCriterion) -> str:
    """Format a threshold such as `>= 0.9`; a trailing `?` marks one that only warns."""
    sign = ">=" if criterion.direction == "max" else "<="
    return f"{sign} {criterion.threshold:g}{'' if criterion.strict else ' ?'}"


def _format_minimum_usd(value: float | None) -> str:
    return "unknown" if value is None else f"at least ${value:.4f}"


def _format_plan_row(name: str, graded: str, threshold: str, needed: str) -> str:
    cells = (
        pad(name, _PLAN_NAME_WIDTH),
        pad(graded, _PLAN_GRADER_WIDTH),
        pad(threshold, _PLAN_THRESHOLD_WIDTH),
        cut(needed, _PLAN_NEEDED_WIDTH),
    )
    return " ".join(cells).rstrip()


def _format_line(label: str, text: str) -> str:
    return format_field(label, text, columns=66)
