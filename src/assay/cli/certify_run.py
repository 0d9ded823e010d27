"""`assay certify run`: run a certification, record it, and say what came of it."""

import asyncio
import json
import os
import re
import shlex
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.certify import (
    BrokeOff,
    CertificationPlan,
    CertificationResult,
    Interrupted,
    Issuing,
    certify,
    plan_certifications,
    refuse_hopeless,
    set_aside,
    write_reports,
)
from assay.errors import AssayError, ConfigError
from assay.runner import Stop
from assay.store import Store
from assay.types import Manifest

from .certify_diff import changes_as_json, refused
from .certify_issue import (
    add_issuing_options,
    changes_since_baseline,
    issuing_from,
    subject_words,
)
from .certify_lines import result_lines
from .certify_options import add_certify_options, settings_from
from .certify_plan import skipped_lines
from .eval_overrides import seconds
from .exit_status import COULD_NOT_TELL, INTERRUPTED, NO, YES, status_of
from .github_summary import tell_github
from .progress_bar import display_for
from .redirect import users_output_on_stderr
from .resume import without_secrets
from .signals import leave_now, stopping_on_signals, ticking
from .store_option import add_store_option, follow_up, store_location
from .terminal import plain_lines, print_json

_REPEATED = (
    "agent runner tools judge dataset limit seed timeout concurrency latency-concurrency warmup "
    "store output sign passphrase-env valid-days"
).split()
_SWITCHES = ("allow-private", "allow-outside", "fail-on-warn")
_WORST_FIRST = (INTERRUPTED, NO, COULD_NOT_TELL, YES)
"""A definite no comes before what could not be told: no second try can change it."""


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
    add_issuing_options(parser)
    parser.add_argument(
        "--fail-on-warn", action="store_true", help="exit 1 when a criterion that warns is missed"
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run; answers that were given already are not asked for again",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="after Ctrl-C, how long samples in flight may take to end (default: 30)",
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: Namespace) -> int:
    """Exit status: 0 certified, 1 a strict criterion failed, 2 nothing was run, 3 could not tell,
    130 interrupted.
    """
    aside = _set_aside(args)
    try:
        return _run(args)
    finally:
        _tell_aside(aside)


def refuse(words: Sequence[str]) -> None:
    """Rename earlier results also where the command line is wrong, as far as it can be read."""
    known = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    known.add_argument("-o", "--output", type=Path)
    known.add_argument("--agent")
    with suppress(ArgumentError):
        args, others = known.parse_known_args(words)
        args.manifest = next((each for each in others if os.path.isfile(each)), "")
        _tell_aside(_set_aside(args))


def _tell_aside(aside: list[Path]) -> None:
    for path in aside:
        if path.name.startswith("certificate") and not path.with_suffix("").exists():
            message = f"{path} is the earlier certificate; this run did not renew it"
            print(plain_lines(message), file=sys.stderr)


def _set_aside(args: Namespace) -> list[Path]:
    """Rename earlier certificates and reports before anything can end this run; the new names."""
    if args.output is None:
        return []
    try:
        agents = [args.agent] if args.agent else list(Manifest.load(args.manifest).agents)
    except AssayError:
        agents = []  # which is told when the plan is made
    folders = [args.output, *(args.output / _folder_name(agent) for agent in agents)]
    try:
        return [path for folder in folders for path in set_aside(folder)]
    except OSError as error:
        message = f"the earlier results cannot be renamed: {error.strerror}"
        raise ConfigError(message, where=str(args.output)) from error


def _run(args: Namespace) -> int:
    issuing = issuing_from(args)
    if refused(changes := changes_since_baseline(args), args):
        if args.json:
            print_json({"exit_status": NO, "results": [], **changes_as_json(changes)})
        print("the manifest is not as strict as it was; nothing was run", file=sys.stderr)
        return NO
    # Whatever the user's own code prints is no result of this command.
    with TemporaryDirectory(prefix="assay-") as folder, users_output_on_stderr():
        plans = plan_certifications(
            args.manifest, settings_from(args), agent=args.agent, folder=Path(folder)
        )
        if args.resume is not None and len(plans) > 1:
            raise ConfigError("--resume is for one agent", hint="say which with --agent")
        for plan in plans:
            refuse_hopeless(plan)
        places = _Places(args.output, several=len(plans) > 1)
        _refuse_shared_folders(places, plans)
        with Store.open(store_location(args)) as store:
            ends = [_ended(plan, store, args, places, issuing) for plan in plans]
    status = min((end.status for end in ends), key=_WORST_FIRST.index)
    _tell(ends, plans, args, status)
    if status == INTERRUPTED:
        leave_now()
    return status


@dataclass(frozen=True)
class _End:
    """What became of one agent."""

    agent: str
    status: int
    result: CertificationResult | None = None
    written: tuple[Path, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class _Places:
    """Where the files of each agent go."""

    folder: Path | None
    several: bool

    def of(self, agent: str) -> Path | None:
        if self.folder is None or not self.several:
            return self.folder
        return self.folder / _folder_name(agent)


def _refuse_shared_folders(places: _Places, plans: tuple[CertificationPlan, ...]) -> None:
    folders = [places.of(plan.definition.id) for plan in plans]
    if places.folder is not None and len(set(folders)) < len(folders):
        raise ConfigError(
            "two agents have ids that come to one folder's name", hint="certify each with --agent"
        )


def _ended(
    plan: CertificationPlan, store: Store, args: Namespace, places: _Places, issuing: Issuing
) -> _End:
    agent = plan.definition.id
    try:
        result = asyncio.run(_certified(plan, store, args))
    except Interrupted as stopped:
        problem = f"interrupted; what was measured is kept. {_go_on(args, agent, stopped.run_id)}"
        return _End(agent, INTERRUPTED, problem=problem)
    except BrokeOff as broken:
        problem = f"{broken}\nwhat was measured is kept. {_go_on(args, agent, broken.run_id)}"
        return _End(agent, COULD_NOT_TELL, problem=problem)
    except ConfigError:
        raise
    except AssayError as error:
        # The other agents may be within reach.
        return _End(agent, status_of(error), problem=str(error))
    status = result.exit_status(fail_on_warn=args.fail_on_warn)
    written: tuple[Path, ...] = ()
    if (out := places.of(agent)) is not None:
        try:
            written = write_reports(result, out, definition=plan.definition, issuing=issuing)
        except OSError as error:
            problem = f"cannot be written: {error}. {_go_on(args, agent, result.run)}"
            return _End(agent, COULD_NOT_TELL, result, problem=problem)
    tell_github(result, Path(args.manifest))
    unsure = status == COULD_NOT_TELL
    go_on = f"could not be told. {_go_on(args, agent, result.run)}" if unsure else None
    return _End(agent, status, result, written, go_on)


async def _certified(plan: CertificationPlan, store: Store, args: Namespace) -> CertificationResult:
    stop = Stop(grace_s=args.grace)
    with display_for(quiet=args.quiet) as display, stopping_on_signals(stop, display):
        display.say(f"certifying {plan.definition.id}: {plan.agent_calls} calls of the agent")
        async with ticking(display):
            return await certify(
                plan, store=store, resume=args.resume, watch=display.watch, stop=stop
            )


def _tell(
    ends: list[_End], plans: tuple[CertificationPlan, ...], args: Namespace, status: int
) -> None:
    if args.json:
        skipped = [{"agent": key, "why": why} for key, why in plans[0].manifest.skipped.items()]
        results = [_plain(end) for end in ends]
        print_json({"exit_status": status, "results": results, "skipped": skipped})
    else:
        told = [
            "\n".join(
                [
                    *result_lines(end.result),
                    *(f"{'written':<14}{path}" for path in end.written),
                    "next:",
                    f"  {follow_up(args, 'show', end.result.run)}",
                ]
            )
            for end in ends
            if end.result is not None
        ]
        if told:
            print(plain_lines("\n\n".join([*told, *skipped_lines(plans[0].manifest)])))
    for end in ends:
        if end.problem is not None:
            print(plain_lines(f"{end.agent}: {end.problem}"), file=sys.stderr)


def _plain(end: _End) -> dict[str, Any]:
    result = end.result
    return {
        "agent": end.agent,
        "exit_status": end.status,
        "certified": result is not None and result.certified,
        "problem": end.problem,
        "written": [str(path) for path in end.written],
        "result": None if result is None else json.loads(result.model_dump_json()),
    }


def _folder_name(agent: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", agent).strip("-") or "agent"


def _go_on(args: Namespace, agent: str, run_id: str) -> str:
    """The command that goes on with a run, without passwords."""
    words = ["assay", "certify", "run", args.manifest]
    given = {**vars(args), "agent": agent}
    for name in _REPEATED:
        value = given[name.replace("-", "_")]
        if value is not None:
            words += [f"--{name}", without_secrets(str(value))]
    for each in args.subject:
        words += ["--subject", subject_words(each)]
    words += [f"--{name}" for name in _SWITCHES if given[name.replace("-", "_")]]
    return f"Go on with:\n  {shlex.join([*words, '--resume', run_id])}"
