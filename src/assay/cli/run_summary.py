"""How `assay eval` ended: its results, its exit status and what to do next."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from assay.runner import EvalReport
from assay.stats import format_labelled, format_plural
from assay.store import FailureGroup, RetriedAttempts

from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PASS
from .failures import failures_to_dicts, format_failures

_MAX_LISTED_SKIPPED = 3
"""How many rows that were skipped are named; --json has more of them."""


@dataclass(frozen=True)
class EvalCommandReport:
    """What is told of a run that came to an end."""

    report: EvalReport
    retried: RetriedAttempts
    resume: str
    """The command that goes on with it."""

    next: tuple[str, ...]
    """Commands that look at it, the first of them `assay show`."""

    failures: tuple[FailureGroup, ...] = ()
    """The most frequent reasons for which samples failed."""

    @property
    def failed(self) -> int:
        return sum(self.report.summary.failed.values())

    @property
    def exit_status(self) -> int:
        if self.report.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_INCONCLUSIVE if self.failed or not self.report.summary.results else EXIT_PASS

    @property
    def problem(self) -> str | None:
        """Why the run is not whole, and what to do; None when it is."""
        if self.report.interrupted:
            return f"interrupted; everything recorded is kept. Go on with:\n  {self.resume}"
        if self.failed:
            boundaries = ", ".join(f"{n} {name}" for name, n in self.report.summary.failed.items())
            return "\n".join(
                [
                    *format_failures(self.failures, self.failed),
                    f"{self.failed} failed ({boundaries}). See why, and try them again, with:",
                    f"  {self.next[0]} --failed\n  {self.resume}",
                ]
            )
        if not self.report.summary.results:
            return "the dataset has no samples: nothing was evaluated"
        return None

    def lines(self) -> list[str]:
        """The summary, then the run and the commands that look at it."""
        run = self.report.run_id
        return [
            *self.report.summary.lines(),
            *format_retries(self.retried),
            *self._format_skipped_rows(),
            f"{'run':<14}{run}",
            f"{'store':<14}{self.report.store}",
            "next:",
            *(f"  {command}" for command in self.next),
        ]

    def _format_skipped_rows(self) -> list[str]:
        skipped = self.report.skipped
        if not skipped:
            return []
        return format_labelled(
            "not read", str(replace(skipped, problems=skipped.problems[:_MAX_LISTED_SKIPPED]))
        )

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        skipped = self.report.skipped
        return {
            "run": self.report.run_id,
            "store": self.report.store,
            "interrupted": self.report.interrupted,
            "failed": self.failed,
            "exit_status": self.exit_status,
            "problem": self.problem,
            "failures": failures_to_dicts(self.failures),
            "summary": json.loads(self.report.summary.model_dump_json()),
            "retried": asdict(self.retried),
            "not_read": {
                "count": 0 if skipped is None else skipped.count,
                "problems": [] if skipped is None else [str(each) for each in skipped.problems],
            },
            "next": list(self.next),
        }


def format_retries(retried: RetriedAttempts) -> list[str]:
    """What failed attempts cost beside the cost of a run, where it is known to be something."""
    if not retried.cost_usd:
        return []
    least = "" if retried.cost_known == retried.attempts else "at least "
    attempts = format_plural(retried.attempts, "failed attempt")
    return format_labelled("retried", f"{attempts} cost {least}${retried.cost_usd:.4f} more")
