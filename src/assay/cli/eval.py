"""`assay eval`: run the evaluation that a file defines, and record it."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from assay.errors import AssayError, ConfigError
from assay.runner import EvalConfig, EvalReport, Resume, Stop, evaluate, expect_endpoint
from assay.stats import plural
from assay.store import Run, RunSpec, Store

from .eval_file import EvalFile, load_eval_file, users_traceback
from .eval_overrides import (
    add_key_option,
    add_plain_http_option,
    count,
    dollars,
    failure_limit,
    names_model,
    overridden,
    resume_from,
    seconds,
)
from .exit_status import WRONG_REQUEST, CouldNotTell
from .progress_bar import Display, display_for
from .redirect import users_output_on_stderr
from .resume import resume_command
from .run_code import describe_code
from .run_summary import Ending
from .signals import leave_now, stopping_on_signals, ticking
from .store_option import add_store_option, follow_up, store_location
from .terminal import plain_lines, print_json

if TYPE_CHECKING:
    from .eval_bundle import TrustedBundle


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.py[:config]",
        help="defines `config`, an EvalConfig, and `dataset`: a path beside the file, a dataset "
        "name or an iterable",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE.tar.gz",
        help="repeat the evaluation of a bundle: run its code on this machine",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run the code of the bundle without asking in a terminal",
    )
    parser.add_argument(
        "--model",
        metavar="PROVIDER:MODEL[@URL]",
        help="ask this model instead, with the sampling settings of the file's endpoint",
    )
    add_key_option(parser)
    add_plain_http_option(parser)
    parser.add_argument("--limit", type=count, metavar="N", help="stop after N samples")
    parser.add_argument("--repeats", type=count, metavar="N", help="rollouts of each sample")
    parser.add_argument(
        "--concurrency", type=count, metavar="N", help="N samples and N requests at once"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="make the seeds of rollouts from N")
    parser.add_argument("--name", help="what the run is called")
    _add_limits(parser)
    _add_session_options(parser)
    _add_resume_options(parser)
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _add_limits(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on-error",
        nargs="?",
        const=True,
        type=failure_limit,
        metavar="X",
        help="stop the run when a sample fails; with X, when more samples fail than this share "
        "(0.1) or count (5)",
    )
    parser.add_argument(
        "--max-cost-usd",
        type=dollars,
        metavar="USD",
        help="start no further samples once the run has cost this much",
    )


def _add_session_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--session",
        metavar="ID",
        help="begin each rollout with the messages of a stored session; see `assay sessions`",
    )
    parser.add_argument(
        "--save-sessions",
        action="store_true",
        default=None,
        help="store each rollout as a session that can be continued",
    )


def _add_resume_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar="RUN",
        help="go on with a run: do what is missing or failed (default: the newest run)",
    )
    parser.add_argument(
        "--allow-changed-dataset",
        action="store_true",
        help="resume though the dataset changed: samples are matched by id",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="resume although another process works on the run: model calls of samples that are "
        "not recorded yet may be repeated, at most once each",
    )
    parser.add_argument(
        "--rescore",
        action="store_true",
        help="score the recorded rollouts of the run again, as a new run: only missing rollouts "
        "are made",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="after Ctrl-C, how long samples in flight may take to end (default: 30)",
    )


def main(args: Namespace) -> int:
    """Exit status: 0 every sample was run, 2 the user declined to run the code of a bundle, 3 some
    samples failed or the run was aborted, 130 interrupted.
    """
    if args.bundle is None:
        if args.trust:
            raise ConfigError("--trust is for a bundle", hint="name it with --bundle")
        if args.file is None:
            raise ConfigError(
                "no evaluation is named",
                where="assay eval",
                hint="name a file, FILE.py[:config], or a bundle with --bundle",
            )
        return _run_file(args)
    # Imported here: evaluations of files need none of it.
    from .eval_bundle import confirm_code, open_bundle, trust_bundle

    bundle = open_bundle(args)
    asks = bundle.manifest.code is not None and not args.trust
    if asks and not confirm_code(bundle, quiet=args.quiet):
        return WRONG_REQUEST
    trusted = trust_bundle(bundle, args)
    if trusted.code.kind == "pytest":
        from .eval_bundle_tests import run_tests

        return run_tests(trusted, args)
    return _run_bundle(trusted, args)


def _run_file(args: Namespace) -> int:
    resume = resume_from(args)
    with users_output_on_stderr():
        loaded = frozenset(sys.modules)
        with expect_endpoint(names_model(args)):
            file = load_eval_file(args.file)
            session = _Session(file, overridden(file.config, args), args, resume)
        with _NotingStore.open(store_location(args), create=resume is None) as store:
            store.provenance = {"code": describe_code(file, args, loaded)}
            ending = _ending(session, store, "OTHER_RUN")
    return _report(ending, args)


def _run_bundle(trusted: "TrustedBundle", args: Namespace) -> int:
    from .eval_bundle import fixed_location

    resume, location = resume_from(args), fixed_location(args)
    with users_output_on_stderr(), trusted.extract() as file:
        settings = Namespace(**{**vars(trusted.args), "limit": None})
        with expect_endpoint(names_model(settings)):
            session = _Session(file, overridden(file.config, settings), args, resume)
        with _NotingStore.open(location, create=resume is None) as store:
            baseline, *_ = trusted.import_results(store)
            store.provenance = {"bundle": {"sha256": trusted.bundle.sha256}}
            ending = _ending(session, store, baseline)
    return _report(ending, args)


def _ending(session: "_Session", store: "_NotingStore", baseline: str) -> Ending:
    """Run the evaluation. `baseline`: the run to compare with next."""
    args = session.args
    if args.session is not None:
        config = replace(session.config, session=store.load_session(args.session))
        session = replace(session, config=config)
    report = session.run(store)
    run = store.run(report.run_id)
    retried, failures = run.retried(), tuple(run.failure_groups())
    commands = (
        follow_up(args, "show", run.id),
        follow_up(args, "compare", baseline, run.id),
    )
    return Ending(report, retried, resume_command(args, run.id), commands, failures)


def _report(ending: Ending, args: Namespace) -> int:
    if args.json:
        print_json(ending.plain())
    else:
        print(plain_lines("\n".join(ending.lines())))
    if ending.problem is not None:
        print(plain_lines(ending.problem), file=sys.stderr)
    if ending.report.interrupted:
        leave_now()
    return ending.exit_status


class _NotingStore(Store):
    """Remembers which run was begun, to tell a run that broke off from one that never was."""

    begun: Run | None = None
    display: Display | None = None
    provenance: Mapping[str, Any] = MappingProxyType({})
    """Where the run comes from: its code, or a bundle."""

    def start_run(self, spec: RunSpec) -> Run:
        named = replace(spec, config={**spec.config, **self.provenance})
        return self._note(super().start_run(named))

    def resume_run(
        self,
        run_id: str,
        spec: RunSpec,
        *,
        allow_changed_dataset: bool = False,
        allow_changed_scorer: bool = False,
        take_over: bool = False,
    ) -> Run:
        if take_over and self.display is not None:
            self._warn(self.run(run_id))
        run = super().resume_run(
            run_id,
            spec,
            allow_changed_dataset=allow_changed_dataset,
            allow_changed_scorer=allow_changed_scorer,
            take_over=take_over,
        )
        return self._note(run)

    def _warn(self, run: Run) -> None:
        """Say what may be done twice while the other process lives."""
        row, display = run.row(), self.display
        if row.holder is None or display is None:
            return
        total, most = row.spec.total, "an unknown number of samples"
        if total is not None:
            most = f"up to {plural(total * row.spec.repeats - row.totals.recorded, 'sample')}"
        display.say(
            f"{row.holder} works on this run as well: the model calls of {most} may be repeated; "
            "each result is recorded once"
        )

    def _note(self, run: Run) -> Run:
        self.begun = run
        if self.display is not None:
            self.display.say(f"run {run.id}")
        return run


@dataclass(frozen=True)
class _Session:
    """One invocation: what to run, and how it was asked for."""

    file: EvalFile
    config: EvalConfig
    args: Namespace
    resume: Resume | None

    def run(self, store: _NotingStore) -> EvalReport:
        """Evaluate until it is done or stopped. Raises `CouldNotTell` when a begun run breaks."""
        try:
            with display_for(quiet=self.args.quiet) as store.display:
                return asyncio.run(self._evaluated(store, store.display))
        except Exception as error:
            if store.begun is not None and not isinstance(error, ConfigError):
                self._broke_off(error, store.begun)
            raise

    async def _evaluated(self, store: _NotingStore, display: Display) -> EvalReport:
        stop = Stop(grace_s=self.args.grace)

        def go_on() -> str | None:
            return None if store.begun is None else resume_command(self.args, store.begun.id)

        with stopping_on_signals(stop, display, go_on):
            async with ticking(display):
                return await evaluate(
                    self.file.dataset,
                    self.config,
                    store=store,
                    resume=self.resume,
                    watch=display.watch,
                    stop=stop,
                )

    def _broke_off(self, error: Exception, run: Run) -> NoReturn:
        """Raise what ended the run, with the way to go on."""
        go_on = f"what was recorded is kept; go on with:\n  {resume_command(self.args, run.id)}"
        if isinstance(error, AssayError):
            raise CouldNotTell(f"{error}\n{go_on}") from error
        shown = users_traceback(error, self.file.path)
        if shown is None:
            raise error
        raise CouldNotTell(f"the run broke off in your code\n{shown}\n{go_on}") from error
