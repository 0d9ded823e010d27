"""How `assay eval` ended: its results, its exit status and what to do next."""

import json
from dataclasses import dataclass
from typing import Any

from assay.evaluation import EvalReport

from .exit_status import COULD_NOT_TELL, INTERRUPTED, YES


@dataclass(frozen=True)
class Ending:
    """What is told of a run that came to an end."""

    report: EvalReport
    resume: str
    """The command that goes on with it."""

    next: tuple[str, ...]
    """Commands that look at it, the first of them `assay show`."""

    @property
    def failed(self) -> int:
        return sum(self.report.summary.failed.values())

    @property
    def exit_status(self) -> int:
        if self.report.interrupted:
            return INTERRUPTED
        return COULD_NOT_TELL if self.failed or not self.report.summary.results else YES

    @property
    def problem(self) -> str | None:
        """Why the run is not whole, and what to do; None when it is."""
        if self.report.interrupted:
            return f"interrupted; everything recorded is kept. Go on with:\n  {self.resume}"
        if self.failed:
            boundaries = ", ".join(f"{n} {name}" for name, n in self.report.summary.failed.items())
            return (
                f"{self.failed} failed ({boundaries}). See why, and try them again, with:\n"
                f"  {self.next[0]} --failed\n  {self.resume}"
            )
        if not self.report.summary.results:
            return "the dataset has no samples: nothing was evaluated"
        return None

    def lines(self) -> list[str]:
        """The summary, then the run and the commands that look at it."""
        run = self.report.run_id
        return [
            *self.report.summary.lines(),
            f"{'run':<14}{run}",
            f"{'store':<14}{self.report.store}",
            "next:",
            *(f"  {command}" for command in self.next),
        ]

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "run": self.report.run_id,
            "store": self.report.store,
            "interrupted": self.report.interrupted,
            "failed": self.failed,
            "exit_status": self.exit_status,
            "problem": self.problem,
            "summary": json.loads(self.report.summary.model_dump_json()),
            "next": list(self.next),
        }
