"""The report of `assay judge`: agreement, evidence, unjudged samples and cost."""

from dataclasses import dataclass, field
from typing import Any

from assay.scorers import Calibrator, Judge, VertexJudge
from assay.stats import format_number, format_plural
from assay.types import Metric, Sample, build_label

from .output import format_wrapped

# The store keeps all of them; the terminal needs enough to recognise the cause.
_MAX_JUDGE_PROBLEMS = 5
_MAX_PROBLEM_LABEL = 60


@dataclass
class Votes:
    """The agreement of votes on one criterion, over the samples."""

    samples: int = 0
    total: float = 0.0
    split: int = 0
    """Samples with votes on both sides of the threshold."""

    @property
    def mean(self) -> float | None:
        return self.total / self.samples if self.samples else None


@dataclass
class JudgeReport:
    """Counts of a judged run, updated sample by sample."""

    judge: Judge | VertexJudge
    calibrator: Calibrator | None = None
    judged: int = 0
    not_applicable: int = 0
    """Not judged because the rubric does not apply, according to the judges."""

    unreadable: int = 0
    """Not judged because an answer of the judges or the transcript is invalid."""

    failed: int = 0
    quotes: int = 0
    quotes_missing: int = 0
    verdicts: int = 0
    """Rubrics that Vertex generated for the samples and gave a verdict on."""

    verdicts_missed: int = 0
    cut: int = 0
    """Samples that the judges were shown truncated."""

    partly_usable: int = 0
    """Judged samples with votes that could not be used."""

    agreement: dict[str, Votes] = field(default_factory=dict)
    by_judge: dict[str, list[float]] = field(default_factory=dict)
    """Sum and number of the scores that each judge of a panel gave."""

    problems: list[str] = field(default_factory=list)
    """The first few problems."""

    @property
    def complete(self) -> bool:
        return not self.unreadable and not self.failed

    def add(self, sample: Sample) -> Sample:
        """Count one sample of the run, and return it."""
        if self.calibrator is not None:
            self.calibrator.add(sample)
        result = sample.score
        if sample.failure is not None:
            self.failed += 1
            self._note_problem(sample, sample.failure.message)
        elif result is None or result.error is not None:
            self.unreadable += 1
            self._note_problem(sample, "no result" if result is None else str(result.error))
        elif result.reward is None:
            self.not_applicable += 1
        else:
            self.judged += 1
        about = None if result is None else (result.model_extra or {}).get("judgement")
        if result is not None and isinstance(about, dict):
            self.cut += bool(about.get("left_out"))
            self.partly_usable += result.reward is not None and about["usable"] < about["votes"]
            for name, metric in result.metrics.items():
                self._add_metric(name, metric)
        return sample

    def _note_problem(self, sample: Sample, problem: str) -> None:
        if len(self.problems) < _MAX_JUDGE_PROBLEMS:
            label = build_label(sample)
            name = f"{sample.id} ({label[:_MAX_PROBLEM_LABEL]})" if label else sample.id
            self.problems.append(f"{name}: {problem}")

    def _add_metric(self, name: str, metric: Metric) -> None:
        extra = metric.model_extra or {}
        # A quote without turns was not found: the judge made it up, or changed it.
        evidence = extra.get("evidence") or []
        self.quotes += len(evidence)
        self.quotes_missing += sum(not each["turns"] for each in evidence)
        verdicts = extra.get("verdicts") or []
        self.verdicts += len(verdicts)
        self.verdicts_missed += sum(not each["met"] for each in verdicts)
        if extra.get("agreement") is not None:
            votes = self.agreement.setdefault(name, Votes())
            votes.samples += 1
            votes.total += extra["agreement"]
            votes.split += bool(extra.get("split"))
        for opinion in extra.get("opinions") or []:
            if opinion["score"] is not None:
                given = self.by_judge.setdefault(opinion["judge"], [0.0, 0])
                given[0] += opinion["score"]
                given[1] += 1

    def lines(self) -> list[str]:
        """Return the report as text; `plain` has the same content."""
        judge, spent = self.judge, self.judge.spending
        votes = f" ({format_plural(judge.votes, 'vote')} each)" if judge.votes > 1 else ""
        lines = [
            *format_wrapped("rubric", f"{judge.rubric.name} ({judge.rubric.digest})"),
            *format_wrapped("judges", f"{', '.join(judge.judges)}{votes}"),
        ]
        for name, mean in self.panel.items():
            lines += format_wrapped("", f"{name}: mean score {format_number(mean)}")
        for index, (name, agreed) in enumerate(self.agreement.items()):
            text = f"{name} {format_number(agreed.mean)} over "
            text += format_plural(agreed.samples, "sample")
            if agreed.split:
                text += f", votes split on {format_plural(agreed.split, 'sample')}"
            lines += format_wrapped("" if index else "agreement", text)
        if isinstance(judge, VertexJudge):
            rubrics = format_plural(self.verdicts, "rubric")
            lines += format_wrapped("verdicts", f"{rubrics}, {self.verdicts_missed} not met")
        else:
            missing = f"{self.quotes_missing} not found in the transcript"
            found = f"{format_plural(self.quotes, 'quote')}, {missing}"
            lines += format_wrapped(
                "evidence", found if self.quotes else "the judges gave no quotes"
            )
        counts = {
            "to which the rubric does not apply": self.not_applicable,
            "that could not be judged": self.unreadable,
            "that failed": self.failed,
            "judged without all votes": self.partly_usable,
            "shown to the judge truncated": self.cut,
        }
        if words := ", ".join(f"{count} {what}" for what, count in counts.items() if count):
            lines += format_wrapped("left out", words)
        calls = [str(spent.calls)]
        calls += (
            [f"{spent.asked_again} repeated for an invalid answer"] if spent.asked_again else []
        )
        calls += [f"{spent.failed} more failed"] if spent.failed else []
        lines += format_wrapped("judge calls", ", ".join(calls))
        lines += format_wrapped("judge cost", spent.words())
        if self.calibrator is not None:
            for each in self.calibrator.compute_calibrations():
                lines += each.lines()
            if missing_labels := len(self.calibrator.missing):
                lines += format_wrapped("labels", f"{missing_labels} without a sample")
            if self.calibrator.unlabelled:
                text = f"{self.calibrator.unlabelled} samples have no label"
                lines += format_wrapped("labels", text)
        return lines

    @property
    def panel(self) -> dict[str, float]:
        """The mean score of each judge; empty unless there are several."""
        if len(self.judge.judges) < 2:
            return {}
        return {name: total / given for name, (total, given) in sorted(self.by_judge.items())}

    def plain(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        calibration: dict[str, Any] | None = None
        if self.calibrator is not None:
            compared = self.calibrator.compute_calibrations()
            calibration = {
                "compared": [each.model_dump(mode="json") for each in compared],
                "labels_without_sample": self.calibrator.missing,
                "samples_without_label": self.calibrator.unlabelled,
            }
        return {
            "rubric": {"name": self.judge.rubric.name, "digest": self.judge.rubric.digest},
            "judges": list(self.judge.judges),
            "votes": self.judge.votes,
            "judged": self.judged,
            "not_applicable": self.not_applicable,
            "unreadable": self.unreadable,
            "failed": self.failed,
            "partly_usable": self.partly_usable,
            "shown_cut": self.cut,
            "problems": self.problems,
            "agreement": {
                name: {"mean": votes.mean, "samples": votes.samples, "split": votes.split}
                for name, votes in self.agreement.items()
            },
            "panel": self.panel,
            "evidence": {"quotes": self.quotes, "not_found": self.quotes_missing},
            "verdicts": {"rubrics": self.verdicts, "not_met": self.verdicts_missed},
            "spending": self.judge.spending.plain(),
            "calibration": calibration,
        }
