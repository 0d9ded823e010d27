"""One evaluation of `assay eval`: runs it, and records how to resume it."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import dropwhile

from assay.errors import AssayError, ConfigError
from assay.runner import (
    EvalConfig,
    EvalReport,
    Resume,
    Shard,
    ShardReport,
    Stop,
    check_dataset,
    create_run_id,
    evaluate,
    refuse_shared_limits,
    run_shard,
)
from assay.scorers import format_user_traceback
from assay.store import Run, Store

from .eval_file import EvalFile
from .eval_workers import WorkerPool, WorkerTask, count_workers
from .exit_status import InconclusiveError
from .output import print_message, print_report
from .progress_bar import Display
from .resume import build_next_command, build_resume_command, format_resume_hint
from .run_summary import EvalCommandReport
from .run_tracking import RunTrackingStore
from .signals import Result, exit_interrupted, run_until_stopped

# Enough for a run of the same evaluation; reading all runs of a team takes time.
_MAX_RUNS_LOOKED_THROUGH = 50


@dataclass(frozen=True)
class EvalInvocation:
    """One evaluation and the options of the command."""

    file: EvalFile
    config: EvalConfig
    args: Namespace
    resume: Resume | None
    is_one_of_many: bool = False
    """Whether the command runs several evaluations, and is resumed as a whole."""

    variant: int = 0
    """The place of this evaluation among those of the command."""

    def run(
        self, store: RunTrackingStore, display: Display, baseline: str | None = None
    ) -> EvalCommandReport:
        """Evaluate to the end or until stopped.

        `baseline` is the run that the report suggests comparing with; by default the one before.
        Raises `InconclusiveError` when a run that was started is aborted.
        """
        store.started, store.display = None, display
        report = self._evaluate(store, display)
        run = store.run(report.run_id)
        baseline = baseline or _find_run_before(run, store)
        commands = (
            build_next_command(self.args, "show", run.id),
            build_next_command(self.args, "compare", baseline, run.id),
        )
        resume = self._build_resume_command(run.id)
        return EvalCommandReport.build(report, run, resume=resume, next=commands)

    def run_shard(
        self, store: RunTrackingStore, display: Display, shard: Shard
    ) -> tuple[ShardReport, str]:
        """Execute one shard. Return its report and the command that resumes it."""
        store.started, store.display = None, display
        config, stop = self._load_session(store), Stop(grace_s=self.args.grace_s)
        report = self._run_to_the_end(
            store,
            display,
            stop,
            lambda: run_shard(
                self.file.dataset, config, shard, store=store, watch=display.watch, stop=stop
            ),
        )
        return report, self._build_resume_command(shard.run_id)

    def _build_resume_command(self, run_id: str) -> str:
        return build_resume_command(self.args, None if self.is_one_of_many else run_id)

    def _evaluate(self, store: RunTrackingStore, display: Display) -> EvalReport:
        stop = Stop(grace_s=self.args.grace_s)
        if (workers := count_workers(self.config, self.args)) is not None:
            refuse_shared_limits(self.config.run_limits, where="--workers")
            # Read once here, and not again in every worker before its first call.
            total = check_dataset(self.file.dataset, self.config)
            task = WorkerTask(self.args, variant=self.variant, total=total)
            limit = self.config.max_cost_usd
            pool = WorkerPool(
                task, workers, store=store, display=display, stop=stop, max_cost_usd=limit
            )
            run_id = self.args.run or create_run_id(self.config.name)
            if self.resume is not None:
                run_id = store.run(self.resume.run_id).id
            return self._run_to_the_end(store, display, stop, lambda: pool.execute(run_id))
        config = self._load_session(store)
        return self._run_to_the_end(
            store,
            display,
            stop,
            lambda: evaluate(
                self.file.dataset,
                config,
                store=store,
                resume=self.resume,
                watch=display.watch,
                stop=stop,
            ),
        )

    def _load_session(self, store: Store) -> EvalConfig:
        if self.args.session is None:
            return self.config
        return replace(self.config, session=store.load_session(self.args.session))

    def _run_to_the_end(
        self,
        store: RunTrackingStore,
        display: Display,
        stop: Stop,
        work: Callable[[], Awaitable[Result]],
    ) -> Result:
        def resume_command() -> str | None:
            run = store.started
            return None if run is None else self._build_resume_command(run.id)

        try:
            return run_until_stopped(work, stop, display, resume_command)
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


def _find_run_before(run: Run, store: Store) -> str:
    """Return the id of the newest run before `run` with its name and dataset."""
    rows = iter(store.runs(limit=_MAX_RUNS_LOOKED_THROUGH))
    for row in dropwhile(lambda row: row.id != run.id, rows):
        same = (row.spec.name, row.spec.dataset) == (run.spec.name, run.spec.dataset)
        if same and row.id != run.id and row.totals.recorded:
            return row.id
    return "OTHER_RUN"


def print_run_summary(ending: EvalCommandReport, args: Namespace) -> int:
    """Print the report, and the problem of an incomplete run. Return the exit status."""
    print_report(args, ending.lines(), ending.plain())
    if ending.problem is not None:
        print_message(ending.problem)
    if ending.report.interrupted:
        exit_interrupted()
    return ending.exit_status
