"""`assay eval`: run an evaluation, or each agent with each prompt, and record the runs."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError
from assay.runner import expect_endpoint, is_recording_file

from .arguments import (
    add_count,
    add_flag,
    add_grace_option,
    add_report_options,
    parse_dollars,
    parse_seconds,
)
from .eval_file import is_eval_file
from .eval_invocation import EvalInvocation, print_run_summary
from .eval_overrides import (
    add_endpoint_options,
    add_replay_options,
    add_scorer_option,
    names_model,
    override_config,
    parse_failure_limit,
    read_resume_options,
)
from .eval_shard import check_process_options, print_shard_report, run_shard_command
from .eval_variants import EvalVariant, load_variants
from .exit_status import EXIT_USAGE_ERROR
from .output import redirect_output_to_stderr
from .progress_bar import choose_display
from .ray_options import add_engine_options, apply_engine_options
from .ready_evals import print_ready_evals
from .run_code import describe_run_code, replaces_parts
from .run_tracking import RunTrackingStore
from .store_option import add_store_option, find_store_location, open_store

if TYPE_CHECKING:
    from .eval_bundle import TrustedBundle


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.py[:config]|NAME|DATASET",
        help="file that defines `config`, an EvalConfig, and `dataset`; a ready evaluation, such "
        "as gsm8k, with --agent; or a dataset itself, such as questions.csv, with --agent and "
        "--scorer",
    )
    add_flag(parser, "--list", "list the ready evaluations")
    _add_dataset_options(parser)
    _add_variant_options(parser)
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
    add_count(parser, "--max-turns", "end a rollout after N answers of the model")
    add_count(parser, "--concurrency", "run N samples and N requests at once")
    parser.add_argument(
        "--timeout-s",
        type=parse_seconds,
        metavar="SECONDS",
        help="fail a sample that takes longer",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="derive the seeds of rollouts from N")
    parser.add_argument("--name", help="name of the run")
    _add_limit_options(parser)
    _add_session_options(parser)
    add_replay_options(parser)
    _add_resume_options(parser)
    _add_process_options(parser)
    add_engine_options(parser, with_workers=False)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def _add_dataset_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dataset",
        metavar="FILE|NAME",
        help="evaluate on this file or hub dataset instead of the dataset of the evaluation",
    )
    parser.add_argument("--split", metavar="NAME", help="split of a hub dataset, such as test")
    parser.add_argument(
        "--judge",
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="grade with this model by the `rubric` of the evaluation, such as of browsecomp",
    )


def _add_variant_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--agent",
        action="append",
        metavar="AGENT",
        help="evaluate a model (openai:gpt-5), a function (FILE.py:function), a command "
        "(cmd:...), a service (http://...) or, with --model, a coding agent (claude-code, codex, "
        "opencode, pi); repeatable: each agent is a run of its own",
    )
    parser.add_argument(
        "--workspace",
        metavar="FOLDER",
        help="give the agent a copy of this folder for each sample, such as of your repository",
    )
    parser.add_argument(
        "--setup",
        metavar="COMMAND",
        help="prepare the workspace of each sample with this command; {field} is a field of the "
        "dataset",
    )
    parser.add_argument(
        "--check",
        metavar="COMMAND",
        help="score each sample by the exit status of this command, run in its workspace after the "
        "agent",
    )
    parser.add_argument(
        "--prompt",
        action="append",
        metavar="FILE",
        help="ask with the text or the list of messages in this file, where {field} is a field of "
        "the dataset; repeatable: each prompt is a run of its own",
    )
    add_scorer_option(parser)


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
    add_count(
        parser,
        "--max-run-turns",
        "refuse model calls after N answers in the whole run, also to samples in flight",
    )
    add_count(parser, "--max-run-tokens", "refuse model calls after N tokens in the whole run")
    parser.add_argument(
        "--max-run-seconds",
        type=parse_seconds,
        metavar="SECONDS",
        help="end the run after this time, also samples in flight",
    )
    parser.add_argument(
        "--max-run-cost-usd",
        type=parse_dollars,
        metavar="USD",
        help="refuse model calls once the run has cost this much, also to samples in flight",
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
        "resume with another scorer, as a new run: recorded rollouts are scored again, missing "
        "ones are executed",
    )
    add_grace_option(parser, "samples")


def _add_process_options(parser: ArgumentParser) -> None:
    add_count(
        parser,
        "--workers",
        "run N processes on this machine, or with --engine ray N workers of the cluster; "
        "--concurrency is the limit of all together",
    )
    parser.add_argument(
        "--shard",
        metavar="K/N",
        help="execute part K of N of the run that --run names, beside other processes",
    )
    parser.add_argument(
        "--run",
        metavar="ID",
        help="id of the run for --shard or --workers; created if it does not exist",
    )


def main(args: Namespace) -> int:
    """Exit status: 0 every sample was run, 2 the user declined to run the code of a bundle, 3 some
    samples failed or the run was aborted, 130 interrupted.
    """
    if args.list:
        return print_ready_evals(args)
    check_process_options(args)
    if args.bundle is None:
        if args.trust:
            raise ConfigError(
                "--trust has no effect without a bundle", hint="name the bundle with --bundle"
            )
        if args.file is None:
            if args.resume is not None and is_eval_file(args.resume):
                raise ConfigError(
                    f"--resume takes {args.resume!r} for the run to resume",
                    where="assay eval",
                    hint=f"name the evaluation first: assay eval {args.resume} --resume",
                )
            raise ConfigError(
                "no evaluation is given",
                where="assay eval",
                hint="name a file, FILE.py[:config], a ready evaluation (`assay eval --list`), a "
                "dataset, or a bundle with --bundle",
            )
        return _run_evaluations(args)
    # Imported here: the evaluation of a file needs none of it.
    from .eval_bundle import confirm_code, open_bundle, refuse_options, trust_bundle

    bundle = open_bundle(args)
    refuse_options(bundle, args)
    asks = bundle.manifest.code is not None and not args.trust
    if asks and not confirm_code(bundle, quiet=args.quiet):
        return EXIT_USAGE_ERROR
    _name_replayed_run(args)
    trusted = trust_bundle(bundle, args)
    if trusted.code.kind == "pytest":
        from .eval_bundle_tests import run_bundled_tests

        return run_bundled_tests(trusted, args)
    return _run_bundle(trusted, args)


def _name_replayed_run(args: Namespace) -> None:
    """Set the whole id of the run to replay: `latest` would be another one when it is resumed."""
    if args.replay is None or is_recording_file(args.replay):
        return
    with open_store(args) as store:
        if not store.has_session(args.replay):
            args.replay = store.run(args.replay).id


def _run_evaluations(args: Namespace) -> int:
    resume = read_resume_options(args)
    _name_replayed_run(args)
    with redirect_output_to_stderr():
        # To record which modules the file imports, and not those of assay.
        loaded = frozenset(sys.modules)
        variants = apply_engine_options(load_variants(args), args, loaded)
        if args.shard is not None:
            with RunTrackingStore.open(find_store_location(args)) as store:
                store.provenance = _describe_code(variants, args, loaded)
                shard_ending = run_shard_command(variants, args, store)
                where = store.where
        elif len(variants) > 1:
            # Imported here: a single evaluation needs none of it.
            from .eval_matrix import run_matrix

            matrix = run_matrix(variants, args, resume)
        else:
            file = variants[0].file
            invocation = EvalInvocation(file, file.config, args, resume)
            location, is_new = find_store_location(args), resume is None
            with RunTrackingStore.open(location, create=is_new) as store:
                store.provenance = _describe_code(variants, args, loaded)
                with choose_display(quiet=args.quiet) as display:
                    ending = invocation.run(store, display)
    if args.shard is not None:
        return print_shard_report(shard_ending, where, args)
    if len(variants) > 1:
        return matrix.print_all(args)
    return print_run_summary(ending, args)


def _describe_code(
    variants: list[EvalVariant], args: Namespace, loaded: frozenset[str]
) -> dict[str, Any]:
    # The options that replace parts of a file are not part of a bundle of its code.
    if not is_eval_file(args.file) or replaces_parts(args):
        return {}
    return {"code": describe_run_code(variants[0].file, args, loaded)}


def _run_bundle(trusted: "TrustedBundle", args: Namespace) -> int:
    from .eval_bundle import resolve_store_location

    resume, location = read_resume_options(args), resolve_store_location(args)
    with redirect_output_to_stderr(), trusted.extract() as file:
        # The limit is applied to the bundled rows when they are loaded.
        settings = Namespace(**{**vars(trusted.args), "max_samples": None})
        with expect_endpoint(names_model(settings)):
            config = override_config(file.config, settings)
        with RunTrackingStore.open(location, create=resume is None) as store:
            baseline, *_ = trusted.import_results(store)
            store.provenance = {"bundle": {"sha256": trusted.bundle.sha256}}
            with choose_display(quiet=args.quiet) as display:
                ending = EvalInvocation(file, config, args, resume).run(store, display, baseline)
    return print_run_summary(ending, args)
