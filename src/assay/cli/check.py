"""`assay check`: run rule-based checks on recorded conversations (no model calls)."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.datasets import SampleStream, SkippedRows, load_samples
from assay.errors import ConfigError, DatasetError
from assay.runner import EvalReport, RaySettings, RescoreOptions, Shard
from assay.scorers import Checks, checks_from, is_check_passed
from assay.store import Store
from assay.types import Sample, build_label

from .arguments import add_count, add_report_options
from .eval_workers import WorkerTask
from .exit_status import (
    EXIT_FAIL,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    InconclusiveError,
)
from .output import (
    cut,
    format_field,
    format_wrapped,
    measure_line_width,
    pad,
    print_message,
    print_report,
    sanitize_to_line,
    wrap_beside,
    write_samples,
)
from .ray_options import ENGINE_OPTIONS, add_engine_options, read_engine_options
from .recorded_scores import (
    ScoringRequest,
    score_in_workers,
    score_recorded,
    score_recorded_shard,
)
from .resume import format_options, format_resume_hint, join_resume_command
from .run_tracking import RunTrackingStore
from .sample_input import SampleInput, is_sample_file, refuse_to_overwrite
from .signals import exit_interrupted
from .store_option import add_store_option, find_store_location

# A broken rule fails on every sample; the counts are complete all the same.
_MAX_LISTED_FINDINGS = 20
_MAX_REASON_LINES = 4
_REASON_INDENT = " " * 4
_CHECK_NAME_WIDTH = 30
_CHECK_CONCURRENCY = 8
# With the output: the file of an interrupted command has only some of the samples.
_CHECK_RESUME_OPTIONS = ("checks", "output", "max_samples", "name", "store", *ENGINE_OPTIONS)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="FILE|RUN",
        help="file of samples or evaluation records; or run id, unique prefix, or `latest`",
    )
    parser.add_argument(
        "--checks", metavar="FILE", required=True, help="YAML file that lists the checks"
    )
    add_count(parser, "--max-samples", "check the first N samples only")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the samples with their results, - for stdout"
    )
    add_count(
        parser,
        "--workers",
        "run N processes on this machine, or with --engine ray N workers of the cluster",
    )
    parser.add_argument("--name", help="name of the new run")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted check run")
    add_engine_options(parser, with_workers=False)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 all pass, 1 a check failed, 3 a sample could not be judged or read."""
    checks = checks_from(args.checks)
    engine = read_engine_options(args, workers_need_engine=False)
    if args.output == "-" and args.json:
        raise ConfigError("--json and `-o -` both write to stdout", hint="pass -o a file")
    if args.output not in (None, "-"):
        refuse_to_overwrite(Path(args.output), (Path(args.source), Path(args.checks)))
    stream = _open_stream(args)
    if stream is not None:
        next(iter(stream), None)  # a file that does not exist is refused before a store is created
    with RunTrackingStore.open(find_store_location(args), create=stream is not None) as store:
        given = SampleInput(args.source, stream=stream)
        if stream is None:
            given = SampleInput.of_run(store.run(args.source))
            # Its id: `latest` will soon mean the run that this command starts.
            args.source = store.run(args.source).id
        report = CheckReport(checks, given, args.output)
        recorded = _check_samples(args, checks, stream, store, engine)
        if recorded is not None:
            report.run_id, report.interrupted = recorded.run_id, recorded.interrupted
            write_samples(args.output, map(report.add, recorded.samples))
    print_report(args, report.lines(), report.json())
    if report.interrupted:
        options = format_options(args, _CHECK_RESUME_OPTIONS)
        command = ["assay", "check", args.source, *options]
        hint = format_resume_hint(join_resume_command(command, report.run_id))
        print_message(f"interrupted; {hint}")
        exit_interrupted()
    return report.exit_status


def check_shard(args: Namespace, shard: Shard) -> SkippedRows | None:
    """Check one part of the samples, in a worker process."""
    with RunTrackingStore.open(find_store_location(args), create=False) as store:
        request = _build_request(args, checks_from(args.checks), _open_stream(args), store, None)
        with _refuse_half_a_file():
            return score_recorded_shard(request, shard, store)


def _open_stream(args: Namespace) -> SampleStream | None:
    if not is_sample_file(args.source):
        return None
    return load_samples(args.source, args.max_samples, on_bad_row="skip")


@contextmanager
def _refuse_half_a_file() -> Iterator[None]:
    try:
        yield
    except DatasetError as error:
        # Exit status 3, not 2: the samples behind the fault may be the ones that matter, so half
        # of a file must not pass for the whole.
        raise InconclusiveError(error.message, where=error.where, hint=error.hint) from error


def _build_request(
    args: Namespace,
    checks: Checks,
    stream: SampleStream | None,
    store: Store,
    engine: RaySettings | None,
) -> ScoringRequest:
    options = RescoreOptions(
        name=args.name or f"check {Path(args.checks).stem}",
        score_failures=True,
        max_samples=args.max_samples,
        # Checks wait for nothing: more samples at once would only take memory.
        concurrency=_CHECK_CONCURRENCY,
        resume=args.resume,
        stops_early=False,
        engine=engine,
    )
    run_id = "" if stream is not None else store.run(args.source).id
    return ScoringRequest(run_id, stream, checks, options, args.quiet)


def _check_samples(
    args: Namespace,
    checks: Checks,
    stream: SampleStream | None,
    store: RunTrackingStore,
    engine: RaySettings | None,
) -> EvalReport | None:
    """Check every sample as a recorded run; None for a run without any."""
    request = _build_request(args, checks, stream, store, engine)
    if stream is None and next(store.run(request.run_id).samples(), None) is None:
        return None
    with _refuse_half_a_file():
        if args.workers is None or engine is not None:
            return score_recorded(request, store)
        task = WorkerTask(args, command="check")
        return score_in_workers(request, task, store, args.workers)[0]


@dataclass
class CheckCounts:
    """How often one check passed, failed and could not be judged."""

    passed: int = 0
    failed: int = 0
    not_judged: int = 0


@dataclass
class CheckReport:
    """The outcome in constant memory: counts, and the first findings."""

    checks: Checks
    given: SampleInput
    output: str | None
    run_id: str | None = None
    """The run that the results are recorded in; None if there were no samples."""

    interrupted: bool = False
    samples: int = 0
    passed: int = 0
    """Samples on which every check that decides passed."""

    tallies: list[CheckCounts] = field(init=False)
    listed: dict[str, list[tuple[str, str, str, str]]] = field(init=False)
    """The first failed and not judged: sample, label, check and reason."""

    def __post_init__(self) -> None:
        self.tallies = [CheckCounts() for _ in self.checks.checks]
        self.listed = {"failed": [], "not judged": []}

    def add(self, sample: Sample) -> Sample:
        """Count the findings of a checked sample, and return it."""
        self.samples += 1
        good = True
        metrics = {} if sample.score is None else sample.score.metrics
        for check, tally in zip(self.checks.checks, self.tallies, strict=True):
            metric = metrics.get(check.name)
            passed = None if metric is None else is_check_passed(metric)
            if passed:
                tally.passed += 1
                continue
            # A check of weight 0 is tracked only and never fails a sample.
            good = good and not check.decides
            kind = "not judged" if passed is None else "failed"
            tally.failed += passed is False
            tally.not_judged += passed is None
            if len(self.listed[kind]) < _MAX_LISTED_FINDINGS:
                reason = "the sample was not checked" if metric is None else metric.reason or ""
                self.listed[kind].append((sample.id, build_label(sample), check.name, reason))
        self.passed += good
        return sample

    @property
    def exit_status(self) -> int:
        """A failure is final; a pass needs every sample to be read and judged."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        pairs = zip(self.checks.checks, self.tallies, strict=True)
        deciding = [tally for check, tally in pairs if check.decides]
        if any(tally.failed for tally in deciding):
            return EXIT_FAIL
        missing = (
            self.given.unread
            or self.given.unfinished
            or any(tally.not_judged for tally in deciding)
        )
        return EXIT_INCONCLUSIVE if missing or not self.samples else EXIT_PASS

    def lines(self) -> Iterator[str]:
        """Yield the report as text; `json` has the same content."""
        yield from format_wrapped("source", sanitize_to_line(self.given.name))
        yield format_field("samples", f"{self.samples} checked, {self.passed} pass every check")
        if self.given.stream is not None and self.given.unread:
            yield format_field("not read", self.given.stream.skipped)
        if self.given.unfinished is not None:
            yield format_field("unfinished", self.given.unfinished)
        yield "checks"
        # The counts of a check take 40 columns.
        name_width = min(_CHECK_NAME_WIDTH, measure_line_width() - 43)
        for check, tally in zip(self.checks.checks, self.tallies, strict=True):
            counts = f"{tally.passed} passed, {tally.failed} failed"
            unjudged = f", {tally.not_judged} not judged" if tally.not_judged else ""
            tracked = "" if check.decides else " (tracked only)"
            yield f"  {pad(check.name, name_width)} {counts}{unjudged}{tracked}"
        for kind in self.listed:
            yield from self._format_listed(kind)
        if self.output is not None and self.output != "-":
            yield format_field("file", self.output)
        if self.run_id is not None:
            yield format_field("run", self.run_id)

    def _format_listed(self, kind: str) -> Iterator[str]:
        found = self.listed[kind]
        if not found:
            return
        yield kind
        width = measure_line_width()
        name_width = min(_CHECK_NAME_WIDTH, width // 3)
        for sample_id, label, name, reason in found:
            finding = f"{cut(sample_id, width // 3)}: {cut(name, name_width)}"
            yield f"  {cut(' | '.join(filter(None, (finding, label))), width - 2)}"
            yield from wrap_beside(_REASON_INDENT, reason, max_lines=_MAX_REASON_LINES)
        if more := self._count_findings(kind) - len(found):
            yield f"  and {more} more: -o FILE writes every result"

    def _count_findings(self, kind: str) -> int:
        return sum(t.failed if kind == "failed" else t.not_judged for t in self.tallies)

    def json(self) -> dict[str, Any]:
        pairs = zip(self.checks.checks, self.tallies, strict=True)
        keys = ("sample", "label", "check", "reason")
        return {
            "source": self.given.name,
            "exit_status": self.exit_status,
            "samples": self.samples,
            "passed": self.passed,
            "checks": [
                {"name": check.name, "weight": check.weight, **vars(tally)}
                for check, tally in pairs
            ],
            "failed": [dict(zip(keys, each, strict=True)) for each in self.listed["failed"]],
            "not_judged": [
                dict(zip(keys, each, strict=True)) for each in self.listed["not judged"]
            ],
            "more": {
                kind.replace(" ", "_"): self._count_findings(kind) - len(found)
                for kind, found in self.listed.items()
            },
            "not_read": {"count": self.given.unread, "problems": self.given.problems},
            "unfinished": self.given.unfinished,
            "file": self.output,
            "run": self.run_id,
        }
