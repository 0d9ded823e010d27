"""`assay score`: score the recorded rollouts of a run again, as a new run. Calls no agent."""

import sys
from argparse import ArgumentParser, Namespace

from assay.errors import AssayError, ConfigError
from assay.providers import LIMIT_SHARE
from assay.runner import (
    EvalReport,
    RaySettings,
    RescoreOptions,
    Shard,
    Stop,
    create_run_id,
    rescore,
    rescore_shard,
)
from assay.scorers import CombinedScorer, ScoreFunction

from .arguments import add_count, add_flag, add_grace_option, add_report_options
from .eval_invocation import print_run_summary
from .eval_overrides import add_scorer_option, resolve_scorers
from .eval_workers import WorkerPool, WorkerTask
from .exit_status import InconclusiveError
from .output import print_message, redirect_output_to_stderr
from .progress_bar import Display, choose_display
from .ray_options import ENGINE_OPTIONS, add_engine_options, find_scripts, read_engine_options
from .resume import build_next_command, format_options, format_resume_hint, join_resume_command
from .run_summary import EvalCommandReport, describe_status
from .run_tracking import RunTrackingStore
from .signals import run_until_stopped
from .store_option import add_store_option, find_store_location

_SCORE_CONCURRENCY = 100
# Options that define the new run or its speed.
_SCORE_RESUME_OPTIONS = (
    *("scorer", "keep_failed", "max_samples", "concurrency", "name", "store"),
    *ENGINE_OPTIONS,
)
_SCORE_DEFAULTS = {"concurrency": _SCORE_CONCURRENCY, "keep_failed": False}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or `latest`")
    add_scorer_option(parser, required=True)
    add_flag(
        parser,
        "--keep-failed",
        "record samples without a complete rollout as failed, too, instead of leaving them out",
    )
    add_count(parser, "--max-samples", "score the first N samples only")
    add_count(parser, "--concurrency", "score N samples at once", default=_SCORE_CONCURRENCY)
    add_count(
        parser,
        "--workers",
        "run N processes on this machine, or with --engine ray N workers of the cluster; "
        "--concurrency is the limit of all together",
    )
    parser.add_argument("--name", help="name of the new run")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted run of this command")
    add_grace_option(parser, "samples")
    add_engine_options(parser, with_workers=False)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 every rollout was scored, 3 some samples failed, 130 interrupted."""
    with redirect_output_to_stderr():
        loaded = frozenset(sys.modules)
        scorer = _load_scorer(args)
        engine = read_engine_options(
            args, find_scripts(args.scorer), loaded, workers_need_engine=False
        )
        with RunTrackingStore.open(find_store_location(args), create=False) as store:
            # Resolved to its id now: `latest` will soon mean the run that this command starts.
            row = store.run(args.run).row()
            args.run = row.id
            if row.status != "completed":
                # A gate on the new run cannot know that its samples are only some of the dataset.
                print_message(
                    f"the run is {describe_status(row)}, and the others are not scored; "
                    "`assay eval ... --resume RUN --rescore` executes them as well"
                )
            report = _score_run(args, scorer, store, engine)
            run = store.run(report.run_id)
            commands = (
                build_next_command(args, "show", run.id),
                build_next_command(args, "compare", args.run, run.id),
            )
            resume = _build_score_command(args, run.id)
            ending = EvalCommandReport.build(report, run, resume=resume, next=commands)
    return print_run_summary(ending, args)


def score_shard(args: Namespace, shard: Shard) -> None:
    """Score one part of the rollouts, in a worker process."""
    stop, scorer = Stop(grace_s=args.grace_s), _load_scorer(args)
    with RunTrackingStore.open(find_store_location(args), create=False) as store:
        options = _build_options(args, None)
        run_until_stopped(
            lambda: rescore_shard(args.run, scorer, shard, store=store, options=options, stop=stop),
            stop,
            Display(),
        )


def _load_scorer(args: Namespace) -> ScoreFunction:
    found = resolve_scorers(args.scorer)
    return found if callable(found) else CombinedScorer(found)


def _build_options(args: Namespace, engine: RaySettings | None) -> RescoreOptions:
    return RescoreOptions(
        name=args.name,
        keep_failed=args.keep_failed,
        max_samples=args.max_samples,
        concurrency=LIMIT_SHARE.take(args.concurrency),
        resume=args.resume,
        engine=engine,
    )


def _score_run(
    args: Namespace, scorer: ScoreFunction, store: RunTrackingStore, engine: RaySettings | None
) -> EvalReport:
    stop, options = Stop(grace_s=args.grace_s), _build_options(args, engine)

    async def work() -> EvalReport:
        if args.workers is None or engine is not None:
            return await rescore(
                args.run, scorer, store=store, options=options, watch=display.watch, stop=stop
            )
        name = args.name or f"{store.run(args.run).spec.name} rescored"
        run_id = create_run_id(name) if args.resume is None else store.run(args.resume).id
        count = min(args.workers, args.concurrency)
        task = WorkerTask(args, command="score")
        pool = WorkerPool(task, count, store=store, display=display, stop=stop)
        return await pool.execute(run_id)

    def resume_command() -> str | None:
        return None if store.started is None else _build_score_command(args, store.started.id)

    try:
        with choose_display(quiet=args.quiet) as display:
            store.display = display
            return run_until_stopped(work, stop, display, resume_command)
    except AssayError as error:
        command = resume_command()
        if command is None or isinstance(error, ConfigError):
            raise
        raise InconclusiveError(f"{error}\n{format_resume_hint(command)}") from error


def _build_score_command(args: Namespace, run_id: str) -> str:
    options = format_options(args, _SCORE_RESUME_OPTIONS, _SCORE_DEFAULTS)
    return join_resume_command(["assay", "score", args.run, *options], run_id)
