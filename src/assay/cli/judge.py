"""`assay judge`: grade the samples of a file or a run by a rubric with a model as judge."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from assay.datasets import SampleStream, SkippedRows, load_samples
from assay.errors import ConfigError, EndpointError, RunStopped
from assay.providers import LIMIT_SHARE
from assay.runner import EvalReport, Progress, RescoreOptions, Shard
from assay.scorers import Calibrator, Judge, Spending, VertexJudge

from .arguments import add_count, add_report_options
from .eval_workers import WorkerTask
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS, InconclusiveError
from .judge_backends import add_backend_options, build_judge
from .judge_labels import read_label_source
from .judge_report import JudgeReport
from .output import format_field, measure_text_width, print_message, print_report, write_samples
from .ray_options import ENGINE_OPTIONS, add_engine_options, read_engine_options
from .recorded_scores import (
    ScoringRequest,
    score_in_workers,
    score_recorded,
    score_recorded_shard,
)
from .resume import build_next_command, format_options, format_resume_hint, join_resume_command
from .run_tracking import RunTrackingStore
from .sample_input import is_sample_file, refuse_to_overwrite
from .signals import exit_interrupted
from .store_option import add_store_option, find_store_location

_JUDGE_CONCURRENCY = 20
# Options that define the judging or its speed; a resumed run must get the same ones. And the
# output: the file of an interrupted command has only some of the samples.
_JUDGE_RESUME_OPTIONS = (
    *("rubric", "backend", "endpoint", "key_env", "panel", "votes", "project", "location"),
    *("labels", "output", "max_samples", "concurrency", "name", "store", "allow_plain_http"),
    *ENGINE_OPTIONS,
)
_JUDGE_DEFAULTS = {
    "backend": "llm",
    "votes": 1,
    "concurrency": _JUDGE_CONCURRENCY,
    "allow_plain_http": False,
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "target", metavar="FILE|RUN", help="file of samples; or run id, unique prefix, or `latest`"
    )
    add_backend_options(parser)
    parser.add_argument(
        "--labels",
        metavar="FILE|RUN",
        help="compare the judge with human labels: a file with one JSON line of id and label each, "
        "or the labels that `assay view` stored beside a run",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write also the judged samples as JSON lines here, - for stdout",
    )
    add_count(parser, "--max-samples", "judge the first N samples only")
    add_count(parser, "--concurrency", "judge N samples at once", default=_JUDGE_CONCURRENCY)
    parser.add_argument("--name", help="name of the new run")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted judge run")
    add_count(
        parser,
        "--workers",
        "run N processes on this machine, or with --engine ray N workers of the cluster; "
        "--concurrency is the limit of all together",
    )
    add_engine_options(parser, with_workers=False)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 judged, 3 some samples could not be judged, 130 interrupted."""
    scorer = build_judge(args)
    judged = JudgeReport(scorer, _build_calibrator(args, scorer))
    stream: SampleStream | None = None
    if args.output not in (None, "-"):
        panel = [] if args.panel is None else [each.strip() for each in args.panel.split(",")]
        inputs = (args.target, args.rubric, args.labels, args.endpoint, *panel)
        refuse_to_overwrite(Path(args.output), [Path(each) for each in inputs if each])
    if is_sample_file(args.target):
        stream = load_samples(args.target, args.max_samples)
        # Reads the whole file once, so that a bad row is found before a call is paid for.
        if not sum(1 for _ in stream):
            raise ConfigError("the file has no samples", where=args.target)
    with RunTrackingStore.open(find_store_location(args), create=stream is not None) as store:
        if stream is None:
            # Resolved to its id now: `latest` will soon mean the run that this command starts.
            args.target = store.run(args.target).id
        try:
            report = _judge_samples(args, scorer, stream, store)
        except (EndpointError, RunStopped, InconclusiveError) as error:
            # The judge refuses the key, or never answers: no other sample would be judged.
            if store.started is None:
                raise
            hint = _format_judge_hint(args, store.started.id)
            raise InconclusiveError(f"{error}\n{hint}") from error
        with report.samples.open_run() as run:
            recorded = run.samples_with_keys()
            write_samples(args.output, (judged.add(each.sample, each.repeat) for each in recorded))
    _print_judge_report(report, judged, args)
    if report.interrupted:
        exit_interrupted()
    return EXIT_PASS if judged.complete and report.summary.results else EXIT_INCONCLUSIVE


def _build_calibrator(args: Namespace, scorer: Judge | VertexJudge) -> Calibrator | None:
    if args.labels is None:
        return None
    calibrator = Calibrator(read_label_source(args), scorer.rubric.threshold)
    names = [criterion.name for criterion in scorer.rubric.criteria]
    if unknown := sorted(calibrator.criteria.difference(names)):
        raise ConfigError(
            f"the label {unknown[0]!r} is not a criterion of the rubric",
            where=args.labels,
            hint=f"the criteria are: {', '.join(names)}",
        )
    return calibrator


def judge_shard(args: Namespace, shard: Shard) -> tuple[SkippedRows | None, Spending]:
    """Judge one part of the samples, in a worker process. Return also what the judge cost."""
    scorer = build_judge(args)
    stream = load_samples(args.target, args.max_samples) if is_sample_file(args.target) else None
    with RunTrackingStore.open(find_store_location(args), create=False) as store:
        request = _build_judge_request(args, scorer, stream)
        return score_recorded_shard(request, shard, store, within=scorer), scorer.spending


def _judge_samples(
    args: Namespace,
    scorer: Judge | VertexJudge,
    stream: SampleStream | None,
    store: RunTrackingStore,
) -> EvalReport:
    request = _build_judge_request(args, scorer, stream)
    if args.workers is None or request.options.engine is not None:
        return score_recorded(request, store, within=scorer)
    task = WorkerTask(args, command="judge")
    count = min(args.workers, args.concurrency)
    report, outcomes = score_in_workers(request, task, store, count)
    for outcome in outcomes:
        if (spent := outcome.spending) is not None:
            scorer.spending.include(Spending(**{**spent, "models": Counter(spent["models"])}))
    return report


def _build_judge_request(
    args: Namespace, scorer: Judge | VertexJudge, stream: SampleStream | None
) -> ScoringRequest:
    def add_cost(progress: Progress) -> Progress:
        # Shows the cost of the judges: that of the samples was paid when they were rolled out.
        cost, unknown = scorer.spending.known_cost_usd, scorer.spending.cost_unknown
        return replace(progress, cost_usd=cost, cost_unknown=unknown)

    options = RescoreOptions(
        name=args.name or f"judge {scorer.rubric.name}",
        max_samples=args.max_samples,
        concurrency=LIMIT_SHARE.take(args.concurrency),
        resume=args.resume,
        engine=read_engine_options(args, workers_need_engine=False),
    )
    return ScoringRequest(args.target, stream, scorer, options, args.quiet, add_cost)


def _print_judge_report(report: EvalReport, judged: JudgeReport, args: Namespace) -> None:
    following = build_next_command(args, "show", report.run_id)
    summary = report.summary.lines(width=measure_text_width())
    lines = [
        # The rest of the summary is about the samples' own model calls.
        *takewhile(lambda line: not line.startswith("latency"), summary),
        *judged.lines(),
        format_field("run", report.run_id),
        format_field("store", report.store),
        "next:",
        f"  {following}",
    ]
    plain = {
        "run": report.run_id,
        "store": report.store,
        "interrupted": report.interrupted,
        "summary": json.loads(report.summary.model_dump_json()),
        **judged.plain(),
        "next": [following],
    }
    print_report(args, lines, plain)
    for problem in judged.problems:
        print_message(f"not judged: {problem}")
    if report.interrupted:
        print_message(f"interrupted; {_format_judge_hint(args, report.run_id)}")


def _format_judge_hint(args: Namespace, run_id: str) -> str:
    options = format_options(args, _JUDGE_RESUME_OPTIONS, _JUDGE_DEFAULTS)
    command = join_resume_command(["assay", "judge", args.target, *options], run_id)
    return format_resume_hint(command, kept="judged samples")
