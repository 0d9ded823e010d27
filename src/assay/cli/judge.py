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
from typing import Any

from pydantic import ValidationError

from assay.endpoints import parse_model
from assay.errors import ConfigError, EndpointError
from assay.evaluation import EvalConfig, EvalReport, Progress, Stop, evaluate, rescore
from assay.models import Endpoint, Sample
from assay.record import Store
from assay.scoring.judges import Calibrator, Judge, judge, read_labels, rubric_names
from assay.sources import SampleStream, load_samples

from .exit_status import COULD_NOT_TELL, YES, CouldNotTell
from .ingest_output import write_file, write_stdout
from .interruption import leave_now, stopping_on_signals, ticking
from .judge_account import JudgeAccount
from .overrides import count
from .progress import Display, display_for
from .resumption import without_secrets
from .store_option import add_store_option, follow_up, store_location
from .terminal import plain_lines, print_json

_DATA = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".gz")
_CONCURRENCY = 20
_SECRETS = ("api_key", "oauth_token")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "target",
        metavar="FILE|RUN",
        help="a file of samples; or a run: its id, its beginning, or latest",
    )
    parser.add_argument(
        "--rubric",
        required=True,
        metavar="NAME|FILE.yaml",
        help=f"a file, or one of {', '.join(rubric_names())}",
    )
    parser.add_argument(
        "--endpoint",
        required=True,
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="who judges; a file holds the fields of an Endpoint, such as its temperature",
    )
    parser.add_argument(
        "--panel",
        metavar="MODEL,...",
        help="further judges, written like --endpoint; each counts the same",
    )
    parser.add_argument(
        "--votes", type=count, default=1, metavar="N", help="ask each judge N times (default: 1)"
    )
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
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N of a file")
    parser.add_argument(
        "--concurrency",
        type=count,
        default=_CONCURRENCY,
        metavar="N",
        help=f"samples of a file to judge at once (default: {_CONCURRENCY})",
    )
    parser.add_argument("--name", help="what the new run is called")
    parser.add_argument(
        "--resume", metavar="RUN", help="go on with the judging of a file that was interrupted"
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: Namespace) -> int:
    """Exit status: 0 judged, 3 some could not be, 130 interrupted; what was judged is kept."""
    scorer = _judge(args)
    account = JudgeAccount(scorer, _calibrator(args, scorer))
    stream = _file(args)
    with Store.open(store_location(args), create=stream is not None) as store:
        try:
            report = asyncio.run(_judged(args, scorer, stream, store))
        except EndpointError as error:
            # A judge that refuses the key: nobody else would be judged either.
            if stream is None:
                raise
            go_on = f"what was judged is kept; go on with:\n  {_resume(args, 'latest')}"
            raise CouldNotTell(f"{error}\n{go_on}") from error
        _write(_counted(report, account), args)
    _tell(report, account, args)
    if report.interrupted:
        leave_now()
    return YES if account.complete and report.summary.results else COULD_NOT_TELL


def _judge(args: Namespace) -> Judge:
    """The judge that was asked for. Raises `ConfigError` for what is wrong with it."""
    named = [args.endpoint, *(args.panel.split(",") if args.panel is not None else ())]
    endpoints = [read_endpoint(each.strip()) for each in named]
    return judge(args.rubric, endpoints, votes=args.votes)


def read_endpoint(text: str) -> Endpoint:
    """The endpoint that a word or a JSON file describes. Keys come from the environment only."""
    if not text.lower().endswith(".json"):
        return parse_model(text)
    try:
        data = json.loads(Path(text).read_bytes())
        found = Endpoint.model_validate(data)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=text) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"not an endpoint: {place}: {first['msg']}", where=text) from None
    except (ValueError, RecursionError):
        raise ConfigError("is not JSON", where=text) from None
    for name in (*_SECRETS, *(found.model_extra or {})):
        if name in data:
            raise ConfigError(
                f"`{name}` does not belong into the file",
                where=text,
                hint="a key comes from the provider's environment variable"
                if name in _SECRETS
                else f"the fields are: {', '.join(Endpoint.model_fields)}",
            )
    return found


def _calibrator(args: Namespace, scorer: Judge) -> Calibrator | None:
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


def _file(args: Namespace) -> SampleStream | None:
    """The samples of a file, or None for a run. Reads all of it before anything is paid for."""
    path = Path(args.target)
    if not path.is_file() and path.suffix.lower() not in _DATA:
        for option in ("limit", "resume"):
            if getattr(args, option) is not None:
                raise ConfigError(
                    f"--{option} is for a file of samples, and {args.target!r} is none"
                )
        return None
    if args.output not in (None, "-") and path.exists() and _same(path, Path(args.output)):
        raise ConfigError(f"{args.output!r} is what is read", hint="name another file after -o")
    stream = load_samples(path, args.limit)
    if not sum(1 for _ in stream):
        raise ConfigError("has no samples", where=str(path))
    return stream


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


async def _judged(
    args: Namespace, scorer: Judge, stream: SampleStream | None, store: Store
) -> EvalReport:
    def with_cost(progress: Progress) -> None:
        # The cost that goes up now is the judges', not that of the samples.
        spent = scorer.spending
        display.watch(
            replace(progress, cost_usd=spent.known_cost_usd, cost_unknown=spent.cost_unknown)
        )

    name = args.name or f"judge {scorer.rubric.name}"
    async with scorer:
        with display_for(quiet=args.quiet) as display:
            async with ticking(display):
                if stream is None:
                    return await rescore(
                        args.target, scorer, store=store, name=name, watch=with_cost
                    )
                config = EvalConfig(score_fn=scorer, name=name, concurrency=args.concurrency)
                return await _evaluated(stream, config, store, args, (display, with_cost))


async def _evaluated(
    stream: SampleStream,
    config: EvalConfig,
    store: Store,
    args: Namespace,
    shown: tuple[Display, Any],
) -> EvalReport:
    display, watch = shown
    stop = Stop()
    with stopping_on_signals(stop, display):
        return await evaluate(
            stream, config, store=store, resume=args.resume, watch=watch, stop=stop
        )


def _counted(report: EvalReport, account: JudgeAccount) -> Iterator[Sample]:
    for sample in report.samples:
        account.add(sample)
        yield sample


def _write(samples: Iterator[Sample], args: Namespace) -> None:
    if args.output == "-":
        write_stdout(samples, Sample.to_json)
    elif args.output is not None:
        write_file(Path(args.output), samples, Sample.to_json)
    else:
        for _ in samples:
            pass


def _tell(report: EvalReport, account: JudgeAccount, args: Namespace) -> None:
    following = follow_up(args, "show", report.run_id)
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
            *_score_lines(report),
            *account.lines(),
            f"{'run':<14}{report.run_id}",
            f"{'store':<14}{report.store}",
            "next:",
            f"  {following}",
        ]
        print(plain_lines("\n".join(lines)), file=stream)
    for problem in account.problems:
        print(plain_lines(f"not judged: {problem}"), file=sys.stderr)
    if report.interrupted:
        text = (
            f"interrupted; what was judged is kept. Go on with:\n  {_resume(args, report.run_id)}"
        )
        print(plain_lines(text), file=sys.stderr)


def _score_lines(report: EvalReport) -> list[str]:
    """The summary as far as it is about scores: the rest is about the samples' own model calls."""
    return list(takewhile(lambda line: not line.startswith("latency"), report.summary.lines()))


def _resume(args: Namespace, run_id: str) -> str:
    words = ["assay", "judge", args.target]
    for name in ("rubric", "endpoint", "panel", "votes", "labels", "limit", "name", "store"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name}", without_secrets(str(value))]
    return shlex.join([*words, "--resume", run_id])
