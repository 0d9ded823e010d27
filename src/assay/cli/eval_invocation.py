"""One evaluation of `assay eval`: runs it, and records how to resume it."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from assay.errors import AssayError, ConfigError
from assay.runner import EvalConfig, EvalReport, Resume, Stop, evaluate
from assay.scorers import format_user_traceback
from assay.stats import format_plural
from assay.store import Run, RunSpec, Store

from .eval_file import EvalFile
from .exit_status import InconclusiveError
from .output import print_message, print_report
from .progress_bar import Display
from .resume import build_resume_command, format_resume_hint
from .run_summary import EvalCommandReport
from .signals import exit_interrupted, run_until_stopped
from .store_option import build_next_command


class RunTrackingStore(Store):
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
class EvalInvocation:
    """One evaluation and the options of the command."""

    file: EvalFile
    config: EvalConfig
    args: Namespace
    resume: Resume | None
    is_one_of_many: bool = False
    """Whether the command runs several evaluations, and is resumed as a whole."""

    def run(self, store: RunTrackingStore, display: Display, baseline: str) -> EvalCommandReport:
        """Evaluate to the end or until stopped.

        `baseline` is the run that the report suggests comparing with. Raises `InconclusiveError`
        when a run that was started is aborted.
        """
        if self.args.session is not None:
            config = replace(self.config, session=store.load_session(self.args.session))
            return replace(self, config=config)._run_and_report(store, display, baseline)
        return self._run_and_report(store, display, baseline)

    def _run_and_report(
        self, store: RunTrackingStore, display: Display, baseline: str
    ) -> EvalCommandReport:
        store.started, store.display = None, display
        report = self._evaluate_to_the_end(store, display)
        run = store.run(report.run_id)
        commands = (
            build_next_command(self.args, "show", run.id),
            build_next_command(self.args, "compare", baseline, run.id),
        )
        failures = tuple(run.failure_groups())
        resume = self._build_resume_command(run.id)
        return EvalCommandReport(report, run.read_retries(), resume, commands, failures)

    def _build_resume_command(self, run_id: str) -> str:
        return build_resume_command(self.args, None if self.is_one_of_many else run_id)

    def _evaluate_to_the_end(self, store: RunTrackingStore, display: Display) -> EvalReport:
        try:
            return self._evaluate(store, display)
        except Exception as error:
            if store.started is not None and not isinstance(error, ConfigError):
                hint = format_resume_hint(self._build_resume_command(store.started.id))
                if isinstance(error, AssayError):
                    raise InconclusiveError(f"{error}\n{hint}") from error
                # A traceback without a frame of the user's file is a fault of assay: shown whole.
                if (shown := format_user_traceback(error, self.file.path)) is not None:
                    text = f"the run was aborted in your code\n{shown}\n{hint}"
                    raise InconclusiveError(text) from error
            raise

    def _evaluate(self, store: RunTrackingStore, display: Display) -> EvalReport:
        stop = Stop(grace_s=self.args.grace)

        def resume_command() -> str | None:
            run = store.started
            return None if run is None else self._build_resume_command(run.id)

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


def print_run_summary(ending: EvalCommandReport, args: Namespace) -> int:
    """Print the report, and the problem of an incomplete run. Return the exit status."""
    print_report(args, ending.lines(), ending.plain())
    if ending.problem is not None:
        print_message(ending.problem)
    if ending.report.interrupted:
        exit_interrupted()
    return ending.exit_status
