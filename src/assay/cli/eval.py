"""`assay eval`: run the evaluation that a file defines, and record it."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, ConfigError
from assay.runner import EvalConfig, EvalReport, Resume, Stop, evaluate, expect_endpoint
from assay.scorers import format_user_traceback
from assay.stats import format_plural
from assay.store import Run, RunSpec, Store

from .arguments import add_count, add_flag, add_grace_option, add_report_options, parse_dollars
from .eval_file import EvalFile, load_eval_file
from .eval_overrides import (
    add_endpoint_options,
    names_model,
    override_config,
    parse_failure_limit,
    read_resume_options,
)
from .exit_status import EXIT_USAGE_ERROR, InconclusiveError
from .output import print_message, print_report, redirect_output_to_stderr
from .progress_bar import Display, choose_display
from .resume import build_resume_command, format_resume_hint
from .run_code import describe_run_code
from .run_summary import EvalCommandReport
from .signals import exit_interrupted, run_until_stopped
from .store_option import add_store_option, build_next_command, find_store_location

if TYPE_CHECKING:
    from .eval_bundle import TrustedBundle


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.py[:config]",
        help="file that defines `config`, an EvalConfig, and `dataset`: a path beside the file, a "
        "dataset name or an iterable",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE.tar.gz",
        help="repeat the evaluation of a bundle: run its code on this machine",
    )
    add_flag(parser, "--trust", "run the code of the bundle without asking in a terminal")
    parser.add_argument(
        "--model",
        metavar="PROVIDER:MODEL[@URL]",
        help="use this model instead, with the sampling settings of the file's endpoint",
    )
    add_endpoint_options(parser)
    add_count(parser, "--max-samples", "stop after N samples")
    add_count(parser, "--repeats", "run N rollouts of each sample")
    add_count(parser, "--concurrency", "run N samples and N requests at once")
    parser.add_argument("--seed", type=int, metavar="N", help="derive the seeds of rollouts from N")
    parser.add_argument("--name", help="name of the run")
    _add_limit_options(parser)
    _add_session_options(parser)
    _add_resume_options(parser)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def _add_limit_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on-error",
        nargs="?",
        const=True,
        type=parse_failure_limit,
        metavar="X",
        help="stop the run when a sample fails; with X, when more samples fail than this share "
        "(0.1) or count (5)",
    )
    parser.add_argument(
        "--max-cost-usd",
        type=parse_dollars,
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
        help="resume a run: execute missing and failed samples (default: the newest run)",
    )
    add_flag(
        parser,
        "--allow-changed-dataset",
        "resume even if the dataset changed: samples are matched by id",
    )
    add_flag(
        parser,
        "--take-over",
        "resume even if another process holds the run: model calls of samples that are not "
        "recorded yet may be repeated, at most once each",
    )
    add_flag(
        parser,
        "--rescore",
        "score the recorded rollouts of the run again, as a new run: only missing rollouts "
        "are executed",
    )
    add_grace_option(parser, "samples")


def main(args: Namespace) -> int:
    """Exit status: 0 every sample was run, 2 the user declined to run the code of a bundle, 3 some
    samples failed or the run was aborted, 130 interrupted.
    """
    if args.bundle is None:
        if args.trust:
            raise ConfigError(
                "--trust has no effect without a bundle", hint="name the bundle with --bundle"
            )
        if args.file is None:
            raise ConfigError(
                "no evaluation file is given",
                where="assay eval",
                hint="name a file, FILE.py[:config], or a bundle with --bundle",
            )
        return _run_file(args)
    # Imported here: the evaluation of a file needs none of it.
    from .eval_bundle import confirm_code, open_bundle, trust_bundle

    bundle = open_bundle(args)
    asks = bundle.manifest.code is not None and not args.trust
    if asks and not confirm_code(bundle, quiet=args.quiet):
        return EXIT_USAGE_ERROR
    trusted = trust_bundle(bundle, args)
    if trusted.code.kind == "pytest":
        from .eval_bundle_tests import run_bundled_tests

        return run_bundled_tests(trusted, args)
    return _run_bundle(trusted, args)


def _run_file(args: Namespace) -> int:
    resume = read_resume_options(args)
    with redirect_output_to_stderr():
        # To record which modules the file imports, and not those of assay.
        loaded = frozenset(sys.modules)
        with expect_endpoint(names_model(args)):
            file = load_eval_file(args.file)
            session = _EvalInvocation(file, override_config(file.config, args), args, resume)
        with _RunTrackingStore.open(find_store_location(args), create=resume is None) as store:
            store.provenance = {"code": describe_run_code(file, args, loaded)}
            ending = _evaluate_and_summarise(session, store, "OTHER_RUN")
    return _print_run_summary(ending, args)


def _run_bundle(trusted: "TrustedBundle", args: Namespace) -> int:
    from .eval_bundle import resolve_store_location

    resume, location = read_resume_options(args), resolve_store_location(args)
    with redirect_output_to_stderr(), trusted.extract() as file:
        # The limit is applied to the bundled rows when they are loaded.
        settings = Namespace(**{**vars(trusted.args), "max_samples": None})
        with expect_endpoint(names_model(settings)):
            session = _EvalInvocation(file, override_config(file.config, settings), args, resume)
        with _RunTrackingStore.open(location, create=resume is None) as store:
            baseline, *_ = trusted.import_results(store)
            store.provenance = {"bundle": {"sha256": trusted.bundle.sha256}}
            ending = _evaluate_and_summarise(session, store, baseline)
    return _print_run_summary(ending, args)


def _evaluate_and_summarise(
    session: "_EvalInvocation", store: "_RunTrackingStore", baseline: str
) -> EvalCommandReport:
    """Run the evaluation. `baseline` is the run that the report suggests comparing with."""
    args = session.args
    if args.session is not None:
        config = replace(session.config, session=store.load_session(args.session))
        session = replace(session, config=config)
    report = session.run(store)
    run = store.run(report.run_id)
    retried, failures = run.read_retries(), tuple(run.failure_groups())
    commands = (
        build_next_command(args, "show", run.id),
        build_next_command(args, "compare", baseline, run.id),
    )
    return EvalCommandReport(
        report, retried, build_resume_command(args, run.id), commands, failures
    )


def _print_run_summary(ending: EvalCommandReport, args: Namespace) -> int:
    print_report(args, ending.lines(), ending.plain())
    if ending.problem is not None:
        print_message(ending.problem)
    if ending.report.interrupted:
        exit_interrupted()
    return ending.exit_status


class _RunTrackingStore(Store):
    """Remembers the started run: an error after its start is reported with a resume hint."""

    started: Run | None = None
    display: Display | None = None
    provenance: Mapping[str, Any] = MappingProxyType({})
    """The origin of the run: its code, or a bundle."""

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
        """Report the work that may be repeated while the other process lives."""
        row, display = run.row(), self.display
        # Without a live holder nothing can be repeated.
        if row.holder is None or display is None:
            return
        total, most = row.spec.total, "an unknown number of samples"
        if total is not None:
            most = (
                f"up to {format_plural(total * row.spec.repeats - row.totals.recorded, 'sample')}"
            )
        display.print_line(
            f"{row.holder} also holds this run: the model calls of {most} may be repeated; "
            "each result is recorded once"
        )

    def _note(self, run: Run) -> Run:
        self.started = run
        if self.display is not None:
            self.display.print_line(f"run {run.id}")
        return run


@dataclass(frozen=True)
class _EvalInvocation:
    """One invocation of the command: the evaluation and its options."""

    file: EvalFile
    config: EvalConfig
    args: Namespace
    resume: Resume | None

    def run(self, store: _RunTrackingStore) -> EvalReport:
        """Evaluate to the end or until stopped.

        Raises `InconclusiveError` when a run that was started is aborted.
        """
        try:
            with choose_display(quiet=self.args.quiet) as store.display:
                return self._evaluate(store, store.display)
        except Exception as error:
            if store.started is not None and not isinstance(error, ConfigError):
                hint = format_resume_hint(build_resume_command(self.args, store.started.id))
                if isinstance(error, AssayError):
                    raise InconclusiveError(f"{error}\n{hint}") from error
                # A traceback without a frame of the user's file is a fault of assay: shown whole.
                if (shown := format_user_traceback(error, self.file.path)) is not None:
                    text = f"the run was aborted in your code\n{shown}\n{hint}"
                    raise InconclusiveError(text) from error
            raise

    def _evaluate(self, store: _RunTrackingStore, display: Display) -> EvalReport:
        stop = Stop(grace_s=self.args.grace)

        def resume_command() -> str | None:
            run = store.started
            return None if run is None else build_resume_command(self.args, run.id)

        return run_until_stopped(
            lambda: evaluate(
                self.file.dataset,
                self.config,
                store=store,
                resume=self.resume,
                watch=display.watch,
                stop=stop,
            ),
            stop,
            display,
            resume_command,
        )
