"""The report of `assay eval` and `assay score`: results, exit status and commands to run next."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

from assay.stats import (
    RunSummary,
    draw_text_bar,
    find_score_range,
    format_interval,
    format_number,
    format_plural,
)
from assay.store import FailureGroup, RetriedAttempts, Run, RunRow

from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PASS
from .output import (
    Line,
    Styled,
    cut,
    format_field,
    format_lines,
    format_wrapped,
    is_ascii_only,
    measure_line_width,
    measure_text_width,
    sanitize_text,
    wrap_beside,
)
from .resume import format_resume_hint

if TYPE_CHECKING:
    from assay.runner import EvalReport, LowScores, NotJudged, ReplayCounts

# A provider may return a whole HTML page as its error.
_MAX_REASON_LINES = 12
# Where the example has a command that shows the rest.
_MAX_BRIEF_REASON_LINES = 2
_SUCH_AS = "such as "
# Less of a label says nothing; the command then has a line of its own.
_MIN_EXAMPLE_WIDTH = 16
# The label, both ends of the scale and a threshold stand beside the bar.
_BESIDE_BAR_WIDTH = 42
_MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 10, 80
# --json lists more of the skipped rows.
_MAX_LISTED_SKIPPED = 3

ShowCommand = Callable[[str], str]
"""Builds the command that shows a sample from its id, with `#2` for another repeat."""


@dataclass(frozen=True)
class EvalCommandReport:
    """The report of a run that has ended."""

    report: "EvalReport"
    retried: RetriedAttempts
    resume: str
    """The command that resumes the run."""

    next: tuple[str, ...]
    """Commands that inspect the run, the first of them `assay show`."""

    failures: tuple[FailureGroup, ...] = ()
    """The most frequent reasons for failed samples."""

    not_judged: "NotJudged | None" = None
    """The reasons for results without a valid score, if there are any."""

    @classmethod
    def build(
        cls, report: "EvalReport", run: Run, *, resume: str, next: tuple[str, ...]
    ) -> "EvalCommandReport":
        """Read what the report of a run needs beside its figures."""
        from assay.runner import group_not_judged

        unjudged = group_not_judged(run) if report.summary.invalid else None
        failures = tuple(run.failure_groups())
        return cls(report, run.read_retries(), resume, next, failures, unjudged)

    @property
    def failed(self) -> int:
        return sum(self.report.summary.failed.values())

    @property
    def exit_status(self) -> int:
        if self.report.interrupted:
            return EXIT_INTERRUPTED
        # Without a single score the run shows nothing, whatever the reason.
        is_scored = self.report.mean is not None
        return EXIT_PASS if is_scored and not self.failed else EXIT_INCONCLUSIVE

    @property
    def problem(self) -> str | None:
        """Why the run is incomplete, and how to fix it; None for a complete run."""
        if self.report.interrupted:
            return f"interrupted; {format_resume_hint(self.resume)}"
        if self.failed:
            boundaries = ", ".join(f"{n} {name}" for name, n in self.report.summary.failed.items())
            lines = [
                *format_failures(self.failures, self.failed),
                f"{self.failed} failed ({boundaries}). Inspect and retry them with:",
                f"  {self.next[0]} --failed",
                f"  {self.resume}",
            ]
            return format_lines(lines, None)
        if not self.report.summary.results:
            return "the dataset has no samples; nothing was evaluated"
        if self.report.mean is None:
            return f"no sample was judged; inspect them with:\n  {self.next[0]}"
        return None

    def lines(self) -> list[str]:
        """Return the summary, then the run and the commands that inspect it."""
        skipped: list[str] = []
        if rows := self.report.skipped:
            shown = replace(rows, problems=rows.problems[:_MAX_LISTED_SKIPPED])
            skipped = format_wrapped("not read", str(shown))
        unjudged: list[str] = []
        if self.not_judged is not None:
            unjudged = format_lines(format_reasons(self.not_judged), None).splitlines()
        return [
            *self.report.summary.lines(width=measure_text_width()),
            *format_replay(self.report.spec.config, self.report.replay),
            *format_retries(self.retried),
            *skipped,
            *unjudged,
            format_field("run", self.report.run_id),
            format_field("store", self.report.store),
            "next:",
            *(f"  {command}" for command in self.next),
        ]

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        skipped = self.report.skipped
        return {
            "run": self.report.run_id,
            "store": self.report.store,
            "interrupted": self.report.interrupted,
            "failed": self.failed,
            "exit_status": self.exit_status,
            "problem": self.problem,
            "failures": [asdict(group) for group in self.failures],
            "not_judged": None if self.not_judged is None else asdict(self.not_judged),
            "summary": json.loads(self.report.summary.model_dump_json()),
            "retried": asdict(self.retried),
            "replay": describe_replayed(self.report.spec.config, self.report.replay),
            "not_read": {
                "count": 0 if skipped is None else skipped.count,
                "problems": [] if skipped is None else [str(each) for each in skipped.problems],
            },
            "next": list(self.next),
        }


def describe_status(row: RunRow) -> str:
    """Return the status of a run, such as `interrupted, with 8 of 40 results`."""
    if row.status == "completed":
        return row.status
    of = "" if row.spec.total is None else f" of {row.spec.total * row.spec.repeats}"
    return f"{row.status}, with {row.totals.recorded}{of} results"


def format_score_lines(summary: RunSummary, threshold: float | None = None) -> list[Line]:
    """Format the score with its interval, and draw it over the range of scores."""
    first, *rest = format_wrapped("score", format_interval(summary.score.interval))
    bar = draw_text_bar(
        summary.score.interval,
        find_score_range(summary),
        threshold=threshold,
        columns=max(min(measure_text_width() - _BESIDE_BAR_WIDTH, _MAX_BAR_WIDTH), _MIN_BAR_WIDTH),
        ascii_only=is_ascii_only(),
    )
    return [Styled(first, "bold"), *rest, *([format_field("", bar)] if bar else [])]


def describe_replayed(
    config: Mapping[str, Any], counts: "ReplayCounts | None" = None
) -> dict[str, Any] | None:
    """Return the recording that a run replayed, as plain values; None for any other run."""
    about = config.get("replay")
    if not isinstance(about, dict):
        return None
    return {**about, **({} if counts is None else asdict(counts))}


def format_replay(config: Mapping[str, Any], counts: "ReplayCounts | None" = None) -> list[str]:
    """Format the recording that a run replayed; empty for any other run."""
    about = describe_replayed(config, counts)
    if about is None:
        return []
    cost = about.get("cost_usd")
    text = f"calls of run {about.get('run')}"
    if counts is not None:
        text = f"{format_plural(counts.replayed, 'call')} of run {about.get('run')}"
        if counts.live or about.get("missing") == "live":
            text += f", {format_plural(counts.live, 'call')} answered by the model"
    elif about.get("missing") == "live":
        text += ", and the model for calls that are not recorded"
    if isinstance(cost, int | float):
        text += f"; recording all of them cost ${cost:.4f}"
    return format_wrapped("replayed", text)


def format_retries(retried: RetriedAttempts) -> list[str]:
    """Format the cost of failed attempts, which the cost of the run excludes; empty if none."""
    if not retried.cost_usd:
        return []
    least = "" if retried.cost_known == retried.attempts else "at least "
    attempts = format_plural(retried.attempts, "failed attempt")
    return format_wrapped("retried", f"{attempts} cost {least}${retried.cost_usd:.4f} more")


def format_failures(
    groups: Sequence[FailureGroup], failed: int, *, show: ShowCommand | None = None
) -> list[Line]:
    """Format each reason with its count and an example; empty if no sample failed.

    `show` builds the command that shows a sample.
    """
    if not groups:
        return []
    lines: list[Line] = ["reasons for failed samples"]
    for group in groups:
        # The reason why a call cannot be replayed is followed by a diff, which is not wrapped.
        reason, *diff = group.message.split("\n") if group.boundary == "replay" else [group.message]
        lines += _format_group(
            group.samples,
            f"{group.boundary}: {group.kind}: {reason}",
            (group.label, group.example),
            show,
            diff=diff,
        )
    if (others := failed - sum(group.samples for group in groups)) > 0:
        lines.append(f"  {others} x for other reasons")
    return lines


def format_reasons(
    found: "LowScores | NotJudged", *, show: ShowCommand | None = None, max_groups: int = 4
) -> list[Line]:
    """Format the reasons of results with their counts and examples; empty if there are none."""
    if not found.groups:
        return []
    lines: list[Line] = [found.title]
    shown = found.groups[:max_groups]
    for group in shown:
        name = group.example if not group.repeat else f"{group.example}#{group.repeat}"
        mean = "" if group.mean is None else f" (mean {format_number(group.mean)})"
        reason = f"{group.reason or 'no reason given'}{mean}"
        lines += _format_group(group.results, reason, (group.label, name), show)
    if (others := found.read - sum(group.results for group in shown)) > 0:
        lines.append(f"  {others} x for other reasons")
    return lines


def _format_group(
    count: int,
    reason: str,
    example: tuple[str, str],
    show: ShowCommand | None,
    *,
    diff: Sequence[str] = (),
) -> list[Line]:
    first = f"  {count} x "
    indent = " " * len(first)
    room = measure_line_width() - len(indent) - len(_SUCH_AS)
    label, name = example
    max_lines = _MAX_REASON_LINES if show is None else _MAX_BRIEF_REASON_LINES
    lines: list[Line] = [*wrap_beside(first, reason, max_lines=max_lines)]
    lines += [f"{indent}{_cut_end(line, len(first))}" for line in diff]
    if show is None:
        both = " | ".join(filter(None, example))
        return [*lines, f"{indent}{_SUCH_AS}{cut(both, room)}"]
    command = show(name)
    beside = room - cell_len(command) - 2
    if not label:
        lines.append((f"{indent}{_SUCH_AS}", Styled(command, "dim")))
    elif beside >= _MIN_EXAMPLE_WIDTH:
        lines.append((f"{indent}{_SUCH_AS}{cut(label, beside)}  ", Styled(command, "dim")))
    else:
        # A command is never cut: users copy it.
        lines += [f"{indent}{_SUCH_AS}{cut(label, room)}", (indent, Styled(command, "dim"))]
    return lines


def _cut_end(line: str, indent: int) -> str:
    # Not `cut`, which would remove the indentation of the line.
    text, width = sanitize_text(line), measure_line_width() - indent
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
