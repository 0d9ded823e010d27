"""`assay certify plan`: the calls, criteria and cost of a certification. Makes no calls."""

import asyncio
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.certify import (
    CertifiedManifest,
    PlanReport,
    ResolvedCriterion,
    plan_certifications,
    report_plan,
)

from .arguments import add_report_options
from .certify_options import add_certify_options, build_certify_settings
from .exit_status import EXIT_PASS
from .output import format_field, format_fields, format_row, print_report, redirect_output_to_stderr

# Of the columns name, grader, threshold and samples needed: 80 with the gaps.
_PLAN_WIDTHS = (18, 24, 11, 24)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    add_certify_options(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 the certification can be run, 2 usage error or invalid manifest."""
    # User modules may print when they are imported; stdout is for the report.
    with TemporaryDirectory(prefix="assay-") as folder, redirect_output_to_stderr():
        plans = plan_certifications(
            args.manifest, build_certify_settings(args), agent=args.agent, folder=Path(folder)
        )
        reports = [report_plan(plan) for plan in plans]

        async def close_plans() -> None:
            for plan in plans:
                await plan.close()

        # A plan has clients with open connections.
        asyncio.run(close_plans())
    texts = ["\n".join(format_plan(report)) for report in reports]
    texts += format_skipped_agents(reports[0].manifest)
    plain = {"plans": [json.loads(report.model_dump_json()) for report in reports]}
    print_report(args, ["\n\n".join(texts)], plain)
    return EXIT_PASS


def format_skipped_agents(manifest: CertifiedManifest) -> list[str]:
    """Return the agents of a manifest that are skipped, as one text; empty if there are none."""
    lines = [
        format_field("skipped", f"{key}: {why}", columns=66)
        for key, why in manifest.skipped.items()
    ]
    return ["\n".join(lines)] if lines else []


def format_plan(report: PlanReport) -> list[str]:
    """Format a plan in lines of at most 80 columns."""
    calls = f"{report.agent_calls} of the agent, {report.warmup} more to warm up"
    if report.judge is not None:
        calls += f"; {report.judge_calls} of the judge"
    agent_usd = format_usd(report.agent_usd_at_least, "at least ")
    judge_usd = format_usd(report.judge_usd_at_least, "at least ")
    fields = {
        "agent": f"{report.agent}: {report.runner}",
        "dataset": f"{report.dataset.uri}, {report.dataset.size}",
        "judge": report.judge or "none: code measures everything",
        "calls": calls,
        "cost": f"agent {agent_usd}, judge {'none' if report.judge is None else judge_usd}",
    }
    rows = [("criterion", "graded by", "threshold", "to prove it")]
    for each in report.criteria:
        needed = "not provable"
        if each.rows_needed is not None:
            needed = f"{each.rows_needed} samples{'' if each.provable else ': too few'}"
        grader = f"{each.graded_by.by} {each.graded_by.name}"
        rows.append((each.name, grader, format_threshold(each), needed))
    return [
        *format_fields(fields, columns=66),
        "",
        *(format_row(row, _PLAN_WIDTHS) for row in rows),
        *(f"not certifiable: {reason}" for reason in report.deviations),
        *(f"note: {notice.text}" for notice in report.warnings),
    ]


def format_threshold(criterion: ResolvedCriterion) -> str:
    """Format a threshold such as `>= 0.9`; a trailing `?` marks one that only warns."""
    sign = ">=" if criterion.direction == "max" else "<="
    return f"{sign} {criterion.threshold:g}{'' if criterion.strict else ' ?'}"


def format_usd(value: float | None, prefix: str = "") -> str:
    """Format a cost, or `unknown`."""
    return "unknown" if value is None else f"{prefix}${value:.4f}"
