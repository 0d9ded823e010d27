"""`assay certify run`: run a certification, record it, and report the result."""

import json
import os
import re
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.certify import (
    CertificationAborted,
    CertificationInterrupted,
    CertificationPlan,
    CertificationResult,
    IssueOptions,
    back_up_reports,
    certify,
    check_provable,
    plan_certifications,
    write_reports,
)
from assay.errors import AssayError, ConfigError
from assay.runner import Stop
from assay.store import Store
from assay.types import Manifest

from .arguments import add_flag, add_grace_option, add_report_options
from .certify_diff import changes_to_dict, has_refused_change
from .certify_format import format_certification, write_github_summary
from .certify_options import (
    add_certify_options,
    add_issue_options,
    build_certify_settings,
    build_issue_options,
    compare_with_old_manifest,
    format_subject,
)
from .certify_plan import format_skipped_agents
from .exit_status import (
    EXIT_FAIL,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    choose_exit_status,
)
from .output import format_field, print_json, print_lines, print_message, redirect_output_to_stderr
from .progress_bar import choose_display
from .ray_options import ENGINE_OPTIONS, add_engine_options, read_engine_options
from .resume import build_next_command, format_options, format_resume_hint, join_resume_command
from .signals import exit_interrupted, run_until_stopped
from .store_option import add_store_option, find_store_location

_CERTIFY_RESUME_OPTIONS = (
    "agent runner tools judge dataset max_samples seed timeout_s concurrency latency_concurrency "
    f"warmup store output sign passphrase_env valid_days {' '.join(ENGINE_OPTIONS)}"
).split()
_CERTIFY_RESUME_FLAGS = dict.fromkeys(("allow_private", "allow_outside", "fail_on_warn"), False)
# A failure comes before an inconclusive result: resuming the other agents cannot change it.
_STATUS_PRECEDENCE = (EXIT_INTERRUPTED, EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    add_certify_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write the result, the certificate, a card and JUnit XML here; with several agents, "
        "in a folder for each",
    )
    add_issue_options(parser)
    add_flag(parser, "--fail-on-warn", "exit 1 when a criterion that only warns is missed")
    parser.add_argument(
        "--resume", metavar="RUN", help="resume a run; recorded answers are not requested again"
    )
    add_grace_option(parser, "samples")
    add_engine_options(parser)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 certified, 1 a strict criterion failed, 2 nothing was run, 3 inconclusive,
    130 interrupted.
    """
    aside = _set_aside_earlier_results(args)
    try:
        return _run_certifications(args)
    finally:
        _print_set_aside(aside)


def set_aside_on_usage_error(words: Sequence[str]) -> None:
    """Rename earlier results when the command line is wrong, as far as it can be parsed."""
    known = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    known.add_argument("-o", "--output", type=Path)
    known.add_argument("--agent")
    # The error itself is reported by the caller.
    with suppress(ArgumentError):
        args, others = known.parse_known_args(words)
        args.manifest = next((each for each in others if os.path.isfile(each)), "")
        _print_set_aside(_set_aside_earlier_results(args))


def _print_set_aside(aside: list[Path]) -> None:
    # Only if no new certificate took its place.
    for path in aside:
        if path.name.startswith("certificate") and not path.with_suffix("").exists():
            message = f"{path} is the earlier certificate; this run did not renew it"
            print_message(message)


def _set_aside_earlier_results(args: Namespace) -> list[Path]:
    """Rename earlier certificates and reports; return the new names.

    Done first, so that a run that is aborted leaves no certificate that looks like its own.
    """
    if args.output is None:
        return []
    try:
        agents = [args.agent] if args.agent else list(Manifest.load(args.manifest).agents)
    except AssayError:
        agents = []  # reported when the plan is made
    folders = [args.output, *(args.output / _make_folder_name(agent) for agent in agents)]
    try:
        return [path for folder in folders for path in back_up_reports(folder)]
    except OSError as error:
        message = f"the earlier results cannot be renamed: {error.strerror}"
        raise ConfigError(message, where=str(args.output)) from error


def _run_certifications(args: Namespace) -> int:
    options = build_issue_options(args)
    if has_refused_change(changes := compare_with_old_manifest(args), args):
        if args.json:
            print_json({"exit_status": EXIT_FAIL, "results": [], **changes_to_dict(changes)})
        print_message("the manifest is weaker than the baseline; nothing was run")
        return EXIT_FAIL
    # User code may print; stdout is for the report.
    with TemporaryDirectory(prefix="assay-") as folder, redirect_output_to_stderr():
        loaded = frozenset(sys.modules)
        plans = plan_certifications(
            args.manifest, build_certify_settings(args), agent=args.agent, folder=Path(folder)
        )
        if (engine := read_engine_options(args, ignore=loaded)) is not None:
            plans = tuple(
                replace(plan, settings=replace(plan.settings, engine=engine)) for plan in plans
            )
        if args.resume is not None and len(plans) > 1:
            raise ConfigError("--resume applies to one agent", hint="choose it with --agent")
        # All agents are checked before the first call is paid for.
        for plan in plans:
            check_provable(plan)
        outputs = _OutputFolders(args.output, several=len(plans) > 1)
        folders = {outputs.of(plan.definition.id) for plan in plans}
        if args.output is not None and len(folders) < len(plans):
            raise ConfigError(
                "two agents have ids that map to the same folder name",
                hint="certify each of them with --agent",
            )
        with Store.open(find_store_location(args)) as store:
            ends = [_certify_and_report(plan, store, args, outputs, options) for plan in plans]
    status = min((end.status for end in ends), key=_STATUS_PRECEDENCE.index)
    _print_certifications(ends, plans, args, status)
    if status == EXIT_INTERRUPTED:
        exit_interrupted()
    return status


@dataclass(frozen=True)
class _AgentOutcome:
    """The outcome of one agent's certification."""

    agent: str
    status: int
    result: CertificationResult | None = None
    written: tuple[Path, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class _OutputFolders:
    """Chooses the output folder of each agent."""

    folder: Path | None
    several: bool

    def of(self, agent: str) -> Path | None:
        if self.folder is None or not self.several:
            return self.folder
        return self.folder / _make_folder_name(agent)


def _certify_and_report(
    plan: CertificationPlan,
    store: Store,
    args: Namespace,
    outputs: _OutputFolders,
    options: IssueOptions,
) -> _AgentOutcome:
    agent = plan.definition.id
    out = outputs.of(agent)
    try:
        result = _certify_with_display(plan, store, args)
    except CertificationInterrupted as stopped:
        problem = f"interrupted; {_format_certify_hint(args, agent, stopped.run_id, out)}"
        return _AgentOutcome(agent, EXIT_INTERRUPTED, problem=problem)
    except CertificationAborted as broken:
        problem = f"{broken}\n{_format_certify_hint(args, agent, broken.run_id, out)}"
        return _AgentOutcome(agent, EXIT_INCONCLUSIVE, problem=problem)
    except ConfigError:
        raise
    except AssayError as error:
        # Not raised: the endpoints of the other agents may be reachable.
        return _AgentOutcome(agent, choose_exit_status(error), problem=str(error))
    status = result.exit_status(fail_on_warn=args.fail_on_warn)
    hint = _format_certify_hint(args, agent, result.run, out)
    written: tuple[Path, ...] = ()
    if out is not None:
        try:
            written = write_reports(result, out, definition=plan.definition, options=options)
        except OSError as error:
            problem = f"the reports cannot be written: {error}; {hint}"
            return _AgentOutcome(agent, EXIT_INCONCLUSIVE, result, problem=problem)
    write_github_summary(result, Path(args.manifest))
    if status == EXIT_INCONCLUSIVE:
        return _AgentOutcome(agent, status, result, written, f"inconclusive; {hint}")
    return _AgentOutcome(agent, status, result, written)


def _certify_with_display(
    plan: CertificationPlan, store: Store, args: Namespace
) -> CertificationResult:
    stop = Stop(grace_s=args.grace_s)
    with choose_display(quiet=args.quiet) as display:
        display.print_line(
            f"certifying {plan.definition.id}: {plan.agent_calls} calls of the agent"
        )
        return run_until_stopped(
            lambda: certify(plan, store=store, resume=args.resume, watch=display.watch, stop=stop),
            stop,
            display,
        )


def _print_certifications(
    ends: list[_AgentOutcome], plans: tuple[CertificationPlan, ...], args: Namespace, status: int
) -> None:
    if args.json:
        skipped = [{"agent": key, "why": why} for key, why in plans[0].manifest.skipped.items()]
        results = [_agent_outcome_to_dict(end) for end in ends]
        print_json({"exit_status": status, "results": results, "skipped": skipped})
    else:
        texts = [
            "\n".join(
                [
                    *format_certification(end.result),
                    *(format_field("written", path) for path in end.written),
                    "next:",
                    f"  {build_next_command(args, 'show', end.result.run)}",
                ]
            )
            for end in ends
            if end.result is not None
        ]
        if texts:
            print_lines(["\n\n".join([*texts, *format_skipped_agents(plans[0].manifest)])])
    for end in ends:
        if end.problem is not None:
            print_message(f"{end.agent}: {end.problem}")


def _agent_outcome_to_dict(end: _AgentOutcome) -> dict[str, Any]:
    result = end.result
    return {
        "agent": end.agent,
        "exit_status": end.status,
        "certified": result is not None and result.certified,
        "problem": end.problem,
        "written": [str(path) for path in end.written],
        "result": None if result is None else json.loads(result.model_dump_json()),
    }


def _make_folder_name(agent: str) -> str:
    # Ids may contain slashes and dots, which must not choose the folder.
    return re.sub(r"[^A-Za-z0-9_-]+", "-", agent).strip("-") or "agent"


def _format_certify_hint(args: Namespace, agent: str, run_id: str, out: Path | None) -> str:
    # A run has one agent, also when the command named none and certifies all of them. Its files
    # stay in the folder of this agent: in one folder, those of the next agent would replace them.
    given = Namespace(**{**vars(args), "agent": agent, "output": out})
    words = ["assay", "certify", "run", args.manifest]
    words += format_options(given, _CERTIFY_RESUME_OPTIONS)
    for each in args.subject:
        words += ["--subject", format_subject(each)]
    words += format_options(given, _CERTIFY_RESUME_FLAGS, _CERTIFY_RESUME_FLAGS)
    return format_resume_hint(join_resume_command(words, run_id), kept="measurements")
