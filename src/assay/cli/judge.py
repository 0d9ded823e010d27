"""`assay judge`: samples of a file or a run, graded by a rubric with a model as judge."""

import asyncio
import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TypedDict

from assay.datasets import SampleStream, load_samples
from assay.errors import ConfigError, EndpointError, RunStopped
from assay.runner import (
    EvalConfig,
    EvalReport,
    Progress,
    ProgressCallback,
    RescoreOptions,
    Stop,
    evaluate,
    rescore,
)
from assay.scorers import Calibrator, Judge, VertexJudge, read_labels
from assay.store import Store
from assay.types import Sample

from .eval_overrides import count
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS, InconclusiveError
from .ingest_output import write_file, write_stdout
from .judge_backends import add_backend_options, build_judge
from .judge_report import JudgeReport
from .progress_bar import choose_display
from .resume import redact_option_value
from .signals import exit_interrupted, stop_on_signals, tick_periodically
from .store_option import add_store_option, build_next_command, find_store_location
from .terminal import print_json, sanitize_lines

_JUDGED_FILE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".gz")
_JUDGE_CONCURRENCY = 20
_JUDGE_RESUME_OPTIONS = (
    *("rubric", "backend", "endpoint", "key_env", "panel", "votes", "project", "location"),
    *("labels", "limit", "concurrency", "name", "store"),
)
"""Options that a resumed judging is asked for again: they decide what it is, or how fast."""

_JUDGE_DEFAULTS = {"backend": "llm", "votes": 1, "concurrency": _JUDGE_CONCURRENCY}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "target",
        metavar="FILE|RUN",
        help="a file of samples; or a run: its id, its beginning, or latest",
    )
    add_backend_options(parser)
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE.jsonl",
        help="what people said, as id and label a line: how far the judge agrees with them",
    )
    _add_run_options(parser)


def _add_run_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="also write the judged samples as JSON lines here, - for stdout",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="judge the first N samples only")
    parser.add_argument(
        "--concurrency",
        type=count,
        default=_JUDGE_CONCURRENCY,
        metavar="N",
        help=f"samples to judge at once (default: {_JUDGE_CONCURRENCY})",
    )
    parser.add_argument("--name", help="what the new run is called")
    parser.add_argument("--resume", metavar="RUN", help="go on with a judging that was interrupted")
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: Namespace) -> int:
    """Exit status: 0 judged, 3 some could not be, 130 interrupted; what was judged is kept."""
    scorer = build_judge(args)
    account = JudgeReport(scorer, _build_calibrator(args, scorer))
    stream = _open_sample_file(args)
    with Store.open(find_store_location(args), create=stream is not None) as store:
        if stream is None:
            # By its id from here on: soon the newest run is the one that is being made.
            args.target = store.run(args.target).id
        try:
            report = asyncio.run(_judge_samples(args, scorer, stream, store))
        except (EndpointError, RunStopped) as error:
            # A judge that refuses the key, or never answers: no other sample would be judged.
            go_on = f"what was judged is kept; go on with:\n  {_build_judge_resume_command(args, 'latest')}"
            raise InconclusiveError(f"{error}\n{go_on}") from error
        _write_judged_samples(_count_judged_samples(report, account), args)
    _print_judge_report(report, account, args)
    if report.interrupted:
        exit_interrupted()
    return EXIT_PASS if account.complete and report.summary.results else EXIT_INCONCLUSIVE


def _build_calibrator(args: Namespace, scorer: Judge | VertexJudge) -> Calibrator | None:
    if args.labels is None:
        return None
    calibrator = Calibrator(read_labels(args.labels), scorer.rubric.threshold)
    names = [criterion.name for criterion in scorer.rubric.criteria]
    if unknown := sorted(calibrator.criteria.difference(names)):
        raise ConfigError(
            f"labels {unknown[0]!r}, which is no criterion of the rubric",
            where=str(args.labels),
            hint=f"its criteria are: {', '.join(names)}",
        )
    return calibrator


def _open_sample_file(args: Namespace) -> SampleStream | None:
    """The samples of a file, or None for a run. Reads all of it before anything is paid for."""
    path = Path(args.target)
    if not path.is_file() and path.suffix.lower() not in _JUDGED_FILE_SUFFIXES:
        return None
    if args.output not in (None, "-") and path.exists() and _is_same_file(path, Path(args.output)):
        raise ConfigError(f"{args.output!r} is what is read", hint="name another file after -o")
    stream = load_samples(path, args.limit)
    if not sum(1 for _ in stream):
        raise ConfigError("has no samples", where=str(path))
    return stream


def _is_same_file(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


async def _judge_samples(
    args: Namespace, scorer: Judge | VertexJudge, stream: SampleStream | None, store: Store
) -> EvalReport:
    def with_cost(progress: Progress) -> None:
        # The cost that goes up now is the judges', not that of the samples.
        spent = scorer.spending
        display.watch(
            replace(progress, cost_usd=spent.known_cost_usd, cost_unknown=spent.cost_unknown)
        )

    stop = Stop()
    name = args.name or f"judge {scorer.rubric.name}"
    overseen: _RunControlArguments = {"store": store, "watch": with_cost, "stop": stop}
    async with scorer:
        with choose_display(quiet=args.quiet) as display, stop_on_signals(stop, display):
            async with tick_periodically(display):
                if stream is None:
                    how = RescoreOptions(
                        name=name,
                        limit=args.limit,
                        concurrency=args.concurrency,
                        resume=args.resume,
                    )
                    return await rescore(args.target, scorer, how=how, **overseen)
                config = EvalConfig(score_fn=scorer, name=name, concurrency=args.concurrency)
                return await evaluate(stream, config, resume=args.resume, **overseen)


class _RunControlArguments(TypedDict):
    store: Store
    watch: ProgressCallback
    stop: Stop


def _count_judged_samples(report: EvalReport, account: JudgeReport) -> Iterator[Sample]:
    for sample in report.samples:
        account.add(sample)
        yield sample


def _write_judged_samples(samples: Iterator[Sample], args: Namespace) -> None:
    if args.output == "-":
        write_stdout(samples, Sample.to_json)
    elif args.output is not None:
        write_file(Path(args.output), samples, Sample.to_json)
    else:
        for _ in samples:
            pass


def _print_judge_report(report: EvalReport, account: JudgeReport, args: Namespace) -> None:
    following = build_next_command(args, "show", report.run_id)
    stream = sys.stderr if args.output == "-" else sys.stdout
    if args.json:
        value = {
            "run": report.run_id,
            "store": report.store,
            "interrupted": report.interrupted,
            "summary": json.loads(report.summary.model_dump_json()),
            **account.plain(),
            "next": [following],
        }
        if stream is sys.stdout:
            print_json(value)
        else:
            print(json.dumps(value), file=stream)
    else:
        lines = [
            *_select_score_lines(report),
            *account.lines(),
            f"{'run':<14}{report.run_id}",
            f"{'store':<14}{report.store}",
            "next:",
            f"  {following}",
        ]
        print(sanitize_lines("\n".join(lines)), file=stream)
    for problem in account.problems:
        print(sanitize_lines(f"not judged: {problem}"), file=sys.stderr)
    if report.interrupted:
        text = f"interrupted; what was judged is kept. Go on with:\n  {_build_judge_resume_command(args, report.run_id)}"
        print(sanitize_lines(text), file=sys.stderr)


def _select_score_lines(report: EvalReport) -> list[str]:
    """The summary as far as it is about scores: the rest is about the samples' own model calls."""
    return list(takewhile(lambda line: not line.startswith("latency"), report.summary.lines()))


def _build_judge_resume_command(args: Namespace, run_id: str) -> str:
    words = ["assay", "judge", args.target]
    for name in _JUDGE_RESUME_OPTIONS:
        value = getattr(args, name, None)
        if value is not None and value != _JUDGE_DEFAULTS.get(name):
            words += [f"--{name.replace('_', '-')}", redact_option_value(str(value))]
    words += ["--allow-plain-http"] if getattr(args, "allow_plain_http", False) else []
    return shlex.join([*words, "--resume", run_id])
