"""`assay check`: hold recorded conversations to rules, without a model."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from assay.datasets import SampleStream, load_samples
from assay.errors import ConfigError, DatasetError
from assay.scorers import Checks, checks_from
from assay.store import Run
from assay.types import Sample

from .eval_overrides import count
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS, InconclusiveError
from .ingest_output import write_file, write_stdout
from .store_option import add_store_option, open_store
from .terminal import cut, pad, print_json, sanitize_lines

_SAMPLE_FILE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".gz")
_MAX_LISTED_FINDINGS = 20
_CHECK_LABEL_WIDTH = 14
_CHECK_LINE_WIDTH = 80
_CHECK_NAME_WIDTH = 30


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="FILE|RUN",
        help="a file of samples or evaluation records, or a run's id, its beginning, or latest",
    )
    parser.add_argument(
        "--checks", metavar="FILE", required=True, help="the YAML file that lists the checks"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="check the first N samples only")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the samples with their results, - for stdout"
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status: 0 all pass, 1 some check failed, 3 something could not be judged or read."""
    checks = checks_from(args.checks)
    _refuse_to_overwrite_source(args)
    account = CheckReport(checks, args.source, args.output)
    with ExitStack() as stack:
        samples = _check_samples(_open_checked_samples(args, account, stack), account)
        if args.output is None:
            for _ in samples:
                pass
        elif args.output == "-":
            write_stdout(samples, Sample.to_json)
        else:
            write_file(Path(args.output), samples, Sample.to_json)
    if args.output == "-":
        print(sanitize_lines("\n".join(account.lines())), file=sys.stderr)
    elif args.json:
        print_json(account.json())
    else:
        print(sanitize_lines("\n".join(account.lines())))
    return account.exit_status


def _refuse_to_overwrite_source(args: Namespace) -> None:
    if args.output == "-" and args.json:
        raise ConfigError("--json and `-o -` both write to stdout", hint="give -o a file")
    for given in (args.source, args.checks):
        same = args.output and os.path.exists(args.output) and os.path.exists(given)
        if same and os.path.samefile(args.output, given):
            raise ConfigError("is what is read: it would be lost", where=f"-o {args.output}")


@dataclass
class CheckCounts:
    """How often one check passed, failed and could not be judged."""

    passed: int = 0
    failed: int = 0
    not_judged: int = 0


@dataclass
class CheckReport:
    """What was found, in constant memory: counts, and the first of what is worth showing."""

    checks: Checks
    source: str
    output: str | None
    samples: int = 0
    passed: int = 0
    """Samples on which every check that decides passed."""

    stream: SampleStream | None = None
    unfinished: str | None = None
    tallies: list[CheckCounts] = field(init=False)
    listed: dict[str, list[tuple[str, str, str]]] = field(init=False)
    """The first failed and not judged: sample, check and reason."""

    def __post_init__(self) -> None:
        self.tallies = [CheckCounts() for _ in self.checks.checks]
        self.listed = {"failed": [], "not judged": []}

    def judge(self, sample: Sample) -> Sample:
        """The sample with its result."""
        findings = self.checks.findings(sample)
        self.samples += 1
        good = True
        for check, finding, tally in zip(self.checks.checks, findings, self.tallies, strict=True):
            if finding.passed:
                tally.passed += 1
                continue
            good = good and not check.decides
            kind = "not judged" if finding.passed is None else "failed"
            tally.failed += finding.passed is False
            tally.not_judged += finding.passed is None
            if len(self.listed[kind]) < _MAX_LISTED_FINDINGS:
                self.listed[kind].append((sample.id, check.name, finding.reason))
        self.passed += good
        return sample.model_copy(update={"score": self.checks.result(findings)})

    @property
    def unread(self) -> int:
        return self.stream.skipped.count if self.stream is not None else 0

    @property
    def exit_status(self) -> int:
        """A no stands whatever else is missing; a yes needs everything to be judged."""
        pairs = zip(self.checks.checks, self.tallies, strict=True)
        deciding = [tally for check, tally in pairs if check.decides]
        if any(tally.failed for tally in deciding):
            return EXIT_FAIL
        missing = self.unread or self.unfinished or any(tally.not_judged for tally in deciding)
        return EXIT_INCONCLUSIVE if missing or not self.samples else EXIT_PASS

    def lines(self) -> Iterator[str]:
        """The same as `json`, for people."""
        yield _format_check_line("source", cut(self.source, _CHECK_LINE_WIDTH - _CHECK_LABEL_WIDTH))
        yield _format_check_line(
            "samples", f"{self.samples} checked, {self.passed} pass every check"
        )
        if self.stream is not None and self.unread:
            yield _format_check_line("not read", str(self.stream.skipped))
        if self.unfinished is not None:
            yield _format_check_line("unfinished", self.unfinished)
        yield "checks"
        for check, tally in zip(self.checks.checks, self.tallies, strict=True):
            counts = f"{tally.passed} passed, {tally.failed} failed"
            unjudged = f", {tally.not_judged} not judged" if tally.not_judged else ""
            tracked = "" if check.decides else " (tracked only)"
            yield f"  {pad(check.name, _CHECK_NAME_WIDTH)} {counts}{unjudged}{tracked}"
        for kind in self.listed:
            yield from self._format_listed(kind)
        if self.output is not None and self.output != "-":
            yield _format_check_line("file", self.output)

    def _format_listed(self, kind: str) -> Iterator[str]:
        found = self.listed[kind]
        if not found:
            return
        yield kind
        for sample_id, name, reason in found:
            yield f"  {cut(sample_id, 40)}: {cut(name, _CHECK_NAME_WIDTH)}"
            yield f"    {cut(reason, 4 * _CHECK_LINE_WIDTH)}"
        if more := self._count_findings(kind) - len(found):
            yield f"  and {more} more: -o FILE writes every result"

    def _count_findings(self, kind: str) -> int:
        return sum(t.failed if kind == "failed" else t.not_judged for t in self.tallies)

    def json(self) -> dict[str, Any]:
        pairs = zip(self.checks.checks, self.tallies, strict=True)
        keys = ("sample", "check", "reason")
        problems = [] if self.stream is None else self.stream.skipped.problems
        return {
            "source": self.source,
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
            "not_read": {"count": self.unread, "problems": [str(each) for each in problems]},
            "unfinished": self.unfinished,
            "file": self.output,
        }


def _open_checked_samples(
    args: Namespace, account: CheckReport, stack: ExitStack
) -> Iterator[Sample]:
    """The samples of a file or of a run. What is not there is refused before one is read."""
    if is_sample_file(args.source):
        account.stream = load_samples(args.source, args.limit, on_bad_row="skip")
        return iter(account.stream)
    run = stack.enter_context(open_store(args)).run(args.source)
    account.source = f"run {run.id}"
    account.unfinished = _describe_unfinished_run(run)
    return islice(run.samples(), args.limit)


def is_sample_file(source: str) -> bool:
    """Whether a name is a file's or a dataset's, rather than a run's."""
    looks_so = source.lower().endswith(_SAMPLE_FILE_SUFFIXES) or "/" in source or os.sep in source
    return looks_so or os.path.exists(source)


def _describe_unfinished_run(run: Run) -> str | None:
    row = run.row()
    if row.status == "completed":
        return None
    return f"the run is {row.status}, with {row.totals.recorded} results"


def _check_samples(samples: Iterator[Sample], account: CheckReport) -> Iterator[Sample]:
    try:
        for sample in samples:
            yield account.judge(sample)
    except DatasetError as error:
        if not account.samples:
            raise
        # What was read was judged; what is behind the fault may be just what would have failed.
        raise InconclusiveError(error.message, where=error.where, hint=error.hint) from error


def _format_check_line(label: str, text: str) -> str:
    return f"{label:<{_CHECK_LABEL_WIDTH}}{text}"
