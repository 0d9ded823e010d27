"""Counts of the labels that people gave to the samples of a run."""

from dataclasses import dataclass

from assay.store import Run


@dataclass(frozen=True)
class LabelCounts:
    """The labels of a run. A sample counts once, with its last label."""

    total: int
    passed: int
    failed: int
    scored: int
    corrected: int
    """Samples with a corrected answer."""

    @property
    def text(self) -> str:
        """Such as `12: 9 pass, 3 fail, 2 corrected`."""
        counts = {
            "pass": self.passed,
            "fail": self.failed,
            "with a score": self.scored,
            "corrected": self.corrected,
        }
        words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{self.total}: {words}" if words else str(self.total)


def count_labels(run: Run) -> LabelCounts:
    """Count the last label of each sample."""
    total = passed = failed = scored = corrected = 0
    for label in run.labels():
        total += 1
        passed += label.verdict == "pass"
        failed += label.verdict == "fail"
        scored += label.score is not None
        corrected += label.answer is not None
    return LabelCounts(total, passed, failed, scored, corrected)
