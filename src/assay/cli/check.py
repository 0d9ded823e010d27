"""`assay check`: run rule-based checks on recorded conversations (no model calls)."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.datasets import load_samples
from assay.errors import ConfigError
from assay.scorers import Checks, checks_from
from assay.types import Sample

from .arguments import add_count, add_report_options
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .output import cut, format_field, pad, print_report, write_samples
from .sample_input import (
    SampleInput,
    is_sample_file,
    open_run_samples,
    open_stream,
    refuse_to_overwrite,
)
from .store_option import add_store_option

# A broken rule fails on every sample; the counts are complete all the same.
_MAX_LISTED_FINDINGS = 20
_CHECK_LINE_WIDTH = 80
_CHECK_NAME_WIDTH = 30


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
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 all pass, 1 a check failed, 3 a sample could not be judged or read."""
    checks = checks_from(args.checks)
    if args.output == "-" and args.json:
        raise ConfigError("--json and `-o -` both write to stdout", hint="pass -o a file")
    if args.output not in (None, "-"):
        refuse_to_overwrite(Path(args.output), (Path(args.source), Path(args.checks)))
    with ExitStack() as stack:
        if is_sample_file(args.source):
            stream = load_samples(args.source, args.max_samples, on_bad_row="skip")
            given = open_stream(args.source, stream)
        else:
            given = open_run_samples(args, stack, max_samples=args.max_samples)
        report = CheckReport(checks, given, args.output)
        write_samples(args.output, map(report.judge, given.samples))
    print_report(args, report.lines(), report.json())
    return report.exit_status


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
    samples: int = 0
    passed: int = 0
    """Samples on which every check that decides passed."""

    tallies: list[CheckCounts] = field(init=False)
    listed: dict[str, list[tuple[str, str, str]]] = field(init=False)
    """The first failed and not judged: sample, check and reason."""

    def __post_init__(self) -> None:
        self.tallies = [CheckCounts() for _ in self.checks.checks]
        self.listed = {"failed": [], "not judged": []}

    def judge(self, sample: Sample) -> Sample:
        """Check a sample, count its findings, and return it with its result."""
        findings = self.checks.findings(sample)
        self.samples += 1
        good = True
        for check, finding, tally in zip(self.checks.checks, findings, self.tallies, strict=True):
            if finding.passed:
                tally.passed += 1
                continue
            # A check of weight 0 is tracked only and never fails a sample.
            good = good and not check.decides
            kind = "not judged" if finding.passed is None else "failed"
            tally.failed += finding.passed is False
            tally.not_judged += finding.passed is None
            if len(self.listed[kind]) < _MAX_LISTED_FINDINGS:
                self.listed[kind].append((sample.id, check.name, finding.reason))
        self.passed += good
        return sample.model_copy(update={"score": self.checks.result(findings)})

    @property
    def exit_status(self) -> int:
        """A failure is final; a pass needs every sample to be read and judged."""
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
        yield format_field("source", self.given.name, columns=66)
        yield format_field("samples", f"{self.samples} checked, {self.passed} pass every check")
        if self.given.stream is not None and self.given.unread:
            yield format_field("not read", self.given.stream.skipped)
        if self.given.unfinished is not None:
            yield format_field("unfinished", self.given.unfinished)
        yield "checks"
        for check, tally in zip(self.checks.checks, self.tallies, strict=True):
            counts = f"{tally.passed} passed, {tally.failed} failed"
            unjudged = f", {tally.not_judged} not judged" if tally.not_judged else ""
            tracked = "" if check.decides else " (tracked only)"
            yield f"  {pad(check.name, _CHECK_NAME_WIDTH)} {counts}{unjudged}{tracked}"
        for kind in self.listed:
            yield from self._format_listed(kind)
        if self.output is not None and self.output != "-":
            yield format_field("file", self.output)

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
        }
