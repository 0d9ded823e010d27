"""`assay certify plan`: what a certification would run, prove and cost. Calls nothing."""

import asyncio
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.certify import (
    Bar,
    CertificationPlan,
    CertifiedManifest,
    PlannedCriterion,
    PlanReport,
    plan_certifications,
    report_plan,
)

from .certify_options import add_certify_options, settings_from
from .exit_status import YES
from .redirect import users_output_on_stderr
from .terminal import cut, padded, plain_lines, print_json

_NAME, _GRADED, _BAR, _NEEDED = 18, 24, 11, 24


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    add_certify_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status: 0 it can be run, 2 the manifest or the request is wrong."""
    # Whatever the user's own modules print when they are imported is no result of this command.
    with TemporaryDirectory(prefix="assay-") as folder, users_output_on_stderr():
        plans = plan_certifications(
            args.manifest, settings_from(args), agent=args.agent, folder=Path(folder)
        )
        reports = [report_plan(plan) for plan in plans]
        asyncio.run(_close(plans))
    if args.json:
        print_json({"plans": [json.loads(report.model_dump_json()) for report in reports]})
    else:
        texts = ["\n".join(plan_lines(report)) for report in reports]
        print(plain_lines("\n\n".join([*texts, *skipped_lines(reports[0].manifest)])))
    return YES


async def _close(plans: tuple[CertificationPlan, ...]) -> None:
    for plan in plans:
        await plan.close()


def skipped_lines(manifest: CertifiedManifest) -> list[str]:
    """The agents of a manifest that are not certified, as one text; none where all are."""
    lines = [
        line for key, why in manifest.skipped.items() for line in _line("skipped", f"{key}: {why}")
    ]
    return ["\n".join(lines)] if lines else []


def plan_lines(report: PlanReport) -> list[str]:
    """A plan in lines of at most 80 columns."""
    calls = f"{report.agent_calls} of the agent, {report.warmup} more to warm up"
    if report.judge is not None:
        calls += f"; {report.judge_calls} of the judge"
    lines = [
        *_line("agent", f"{report.agent}: {report.runner}"),
        *_line("dataset", f"{report.dataset.uri}, {report.dataset.size}"),
        *_line("judge", report.judge or "none: code measures everything"),
        *_line("calls", calls),
        *_line("cost", _cost_words(report)),
        "",
        _row("criterion", "graded by", "bar", "to prove it"),
    ]
    for each in report.criteria:
        graded = f"{each.graded_by.by} {each.graded_by.name}"
        lines.append(_row(each.name, graded, bar_words(each), _needed_words(each)))
    lines += [f"rehearsal: {reason}" for reason in report.rehearsal]
    lines += [f"note: {notice.text}" for notice in report.warnings]
    return lines


def _needed_words(planned: PlannedCriterion) -> str:
    if planned.rows_needed is None:
        return "no number is enough"
    words = f"{planned.rows_needed} samples"
    return words if planned.provable else f"{words}: too few"


def bar_words(bar: Bar) -> str:
    """`>= 0.9`, with a `?` behind what only warns."""
    sign = ">=" if bar.direction == "max" else "<="
    return f"{sign} {bar.threshold:g}{'' if bar.strict else ' ?'}"


def _cost_words(report: PlanReport) -> str:
    judge = "none" if report.judge is None else _dollars(report.judge_usd_at_least)
    return f"agent {_dollars(report.agent_usd_at_least)}, judge {judge}"


def _dollars(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"at least ${value:.4f}"


def _row(name: str, graded: str, bar: str, needed: str) -> str:
    cells = (padded(name, _NAME), padded(graded, _GRADED), padded(bar, _BAR), cut(needed, _NEEDED))
    return " ".join(cells).rstrip()


def _line(label: str, text: str) -> list[str]:
    return [f"{label:<14}{cut(text, 66)}"]
