"""`assay eval --shard 3/16`: one part of a run that other processes execute as well."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from assay.errors import ConfigError
from assay.runner import Shard, ShardReport
from assay.stats import format_plural

from .eval_invocation import EvalInvocation
from .eval_variants import EvalVariant
from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PASS
from .output import format_field, print_message, print_report
from .progress_bar import choose_display
from .resume import build_next_command, format_resume_hint
from .run_tracking import RunTrackingStore
from .signals import exit_interrupted


def check_process_options(args: Namespace) -> None:
    """Raise `ConfigError` for options of several processes that do not fit together."""
    has_processes = args.workers is not None and args.engine is None
    if args.run is not None and args.shard is None and not has_processes:
        raise ConfigError(
            "--run has no effect without --shard or --workers",
            hint="pass --resume to resume a run in one process",
        )
    others = {
        "--workers": args.workers,
        "--bundle": args.bundle,
        "--resume": args.resume,
        "--engine": args.engine,
    }
    if args.shard is not None:
        if args.run is None:
            raise ConfigError(
                "--shard needs the id of the run",
                hint="pass the same --run ID to all shards; the first one creates the run",
            )
        for flag, value in others.items():
            if value is not None:
                raise ConfigError(
                    f"--shard and {flag} cannot be combined",
                    hint="a shard executes what its part of the run is missing"
                    if flag == "--resume"
                    else f"leave out {flag}",
                )
    elif has_processes:
        refused = {
            "--bundle": args.bundle is not None,
            "--rescore": args.rescore,
            "--take-over": args.take_over,
        }
        for flag, is_given in refused.items():
            if is_given:
                raise ConfigError(
                    f"--workers and {flag} cannot be combined", hint="leave out --workers"
                )
        if args.run is not None and args.resume is not None:
            raise ConfigError("--run and --resume both name a run", hint="leave out one of the two")


def run_shard_command(
    variants: Sequence[EvalVariant], args: Namespace, store: RunTrackingStore
) -> tuple[ShardReport, str]:
    """Execute the shard. Return its report and the command that resumes it."""
    if len(variants) > 1:
        raise ConfigError(
            "--shard takes one agent and one prompt", hint="start the shards of each by themselves"
        )
    shard = Shard.parse(args.shard, args.run)
    shard = replace(shard, allow_changed_dataset=args.allow_changed_dataset)
    invocation = EvalInvocation(variants[0].file, variants[0].file.config, args, None)
    with choose_display(quiet=args.quiet) as display:
        return invocation.run_shard(store, display, shard)


def print_shard_report(ended: tuple[ShardReport, str], where: str, args: Namespace) -> int:
    """Print what the shard did and the state of the run. Return the exit status of the shard."""
    report, resume = ended
    row = report.run
    total = None if row.spec.total is None else row.spec.total * row.spec.repeats
    recorded = f"{row.totals.recorded} of {'unknown' if total is None else total} recorded"
    failed = f", {row.totals.failed} failed" if row.totals.failed else ""
    next_command = build_next_command(args, "runs", "wait", row.id)
    status = EXIT_INCONCLUSIVE if report.failed else EXIT_PASS
    status = EXIT_INTERRUPTED if report.interrupted else status
    lines = [
        format_field("shard", f"{report.shard}: {report.done} done, {report.failed} failed"),
        format_field("run", f"{row.id}: {row.status}, {recorded}{failed}"),
        format_field("store", where),
        *([format_field("not read", str(report.skipped))] if report.skipped else []),
        "next:",
        f"  {next_command}",
    ]
    plain = {
        "run": row.id,
        "store": where,
        "shard": str(report.shard),
        "done": report.done,
        "failed": report.failed,
        "interrupted": report.interrupted,
        "exit_status": status,
        "run_status": row.status,
        "recorded": row.totals.recorded,
        "total": total,
        "not_read": {"count": report.skipped.count},
        "resume": resume,
        "next": [next_command],
    }
    print_report(args, lines, plain)
    if report.interrupted:
        print_message(f"interrupted; {format_resume_hint(resume)}")
        exit_interrupted()
    if report.failed:
        failed = format_plural(report.failed, "sample")
        print_message(f"{failed} of this shard failed. Retry with:\n  {resume}")
    return status
