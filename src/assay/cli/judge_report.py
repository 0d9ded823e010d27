"""What `assay judge` tells of a judged run: agreement, evidence, what was not judged, and cost."""

from dataclasses import dataclass, field
from typing import Any

from assay.scorers import Calibrator, Judge, VertexJudge
from assay.stats import labelled, number, plural
from assay.types import EvaluateResult, Metric, Sample

_NAMED = 5


@dataclass
class Votes:
    """How far the votes on one criterion agree, over the samples."""

    samples: int = 0
    total: float = 0.0
    split: int = 0
    """Samples whose votes stand on both sides of the threshold."""

    @property
    def mean(self) -> float | None:
        return self.total / self.samples if self.samples else None


@dataclass
class JudgeAccount:
    """Counts of a judged run, filled in while its samples go by."""

    judge: Judge | VertexJudge
    calibrator: Calibrator | None = None
    judged: int = 0
    not_applicable: int = 0
    """Not judged because the judges say that the rubric does not apply."""

    unreadable: int = 0
    """Not judged because of what the judges answered, or of the transcript."""

    failed: int = 0
    quotes: int = 0
    quotes_missing: int = 0
    verdicts: int = 0
    """Rubrics that Vertex made up for the samples and gave a verdict on."""

    verdicts_missed: int = 0
    cut: int = 0
    """Samples of which the judges were not shown everything."""

    partly_usable: int = 0
    """Judged samples some of whose votes could not be used."""

    agreement: dict[str, Votes] = field(default_factory=dict)
    by_judge: dict[str, list[float]] = field(default_factory=dict)
    """Sum and number of the scores that each judge of a panel gave."""

    problems: list[str] = field(default_factory=list)
    """The first few."""

    @property
    def complete(self) -> bool:
        return not self.unreadable and not self.failed

    def add(self, sample: Sample) -> None:
        """Count one sample of the run."""
        if self.calibrator is not None:
            self.calibrator.add(sample)
        result = sample.score
        if sample.failure is not None:
            self.failed += 1
            self._note(sample, sample.failure.message)
        elif result is None or result.error is not None:
            self.unreadable += 1
            self._note(sample, "no result" if result is None else str(result.error))
        elif result.reward is None:
            self.not_applicable += 1
        else:
            self.judged += 1
        if result is not None:
            self._add_result(result)

    def _note(self, sample: Sample, problem: str) -> None:
        if len(self.problems) < _NAMED:
            self.problems.append(f"{sample.id}: {problem}")

    def _add_result(self, result: EvaluateResult) -> None:
        about = (result.model_extra or {}).get("judgement")
        if not isinstance(about, dict):
            return
        self.cut += bool(about.get("left_out"))
        self.partly_usable += result.reward is not None and about["usable"] < about["votes"]
        for name, metric in result.metrics.items():
            self._add_metric(name, metric)

    def _add_metric(self, name: str, metric: Metric) -> None:
        extra = metric.model_extra or {}
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
        """The same as `plain`, for people."""
        votes = f" ({plural(self.judge.votes, 'vote')} each)" if self.judge.votes > 1 else ""
        rubric = f"{self.judge.rubric.name} ({self.judge.rubric.digest})"
        return [
            *labelled("rubric", rubric),
            *labelled("judges", f"{', '.join(self.judge.judges)}{votes}"),
            *self._panel_lines(),
            *self._agreement_lines(),
            *self._evidence_lines(),
            *self._left_out_lines(),
            *labelled("judge calls", self._call_words()),
            *labelled("judge cost", self.judge.spending.words()),
            *self._calibration_lines(),
        ]

    @property
    def panel(self) -> dict[str, float]:
        """The mean score that each judge gave; empty unless there are several."""
        if len(self.judge.judges) < 2:
            return {}
        return {name: total / given for name, (total, given) in sorted(self.by_judge.items())}

    def _panel_lines(self) -> list[str]:
        words = [f"{name} gives {number(mean)} on average" for name, mean in self.panel.items()]
        return [line for each in words for line in labelled("", each)]

    def _agreement_lines(self) -> list[str]:
        lines: list[str] = []
        for name, votes in self.agreement.items():
            split = f", votes split on {plural(votes.split, 'sample')}" if votes.split else ""
            words = f"{name} {number(votes.mean)} over {plural(votes.samples, 'sample')}{split}"
            lines += labelled("" if lines else "agreement", words)
        return lines

    def _evidence_lines(self) -> list[str]:
        if isinstance(self.judge, VertexJudge):
            rubrics = plural(self.verdicts, "rubric")
            return labelled("verdicts", f"{rubrics}, {self.verdicts_missed} not met")
        if not self.quotes:
            return labelled("evidence", "no quotes were given")
        missing = f"{self.quotes_missing} not found in the transcript"
        return labelled("evidence", f"{plural(self.quotes, 'quote')}, {missing}")

    def _left_out_lines(self) -> list[str]:
        counts = {
            "that the rubric does not fit": self.not_applicable,
            "that could not be judged": self.unreadable,
            "that failed": self.failed,
            "judged without all votes": self.partly_usable,
            "shown to the judge cut": self.cut,
        }
        words = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return labelled("left out", words) if words else []

    def _call_words(self) -> str:
        spent = self.judge.spending
        extra = [f"{spent.asked_again} to ask again"] if spent.asked_again else []
        extra += [f"{spent.failed} more failed"] if spent.failed else []
        return ", ".join([str(spent.calls), *extra])

    def _calibration_lines(self) -> list[str]:
        if self.calibrator is None:
            return []
        lines = [line for each in self.calibrator.calibrations() for line in each.lines()]
        if self.calibrator.missing:
            lines += labelled("labels", f"{len(self.calibrator.missing)} of samples not there")
        if self.calibrator.unlabelled:
            lines += labelled("labels", f"{self.calibrator.unlabelled} samples have none")
        return lines

    def plain(self) -> dict[str, Any]:
        """The counts as plain values."""
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
            "calibration": self._calibration(),
        }

    def _calibration(self) -> dict[str, Any] | None:
        if self.calibrator is None:
            return None
        return {
            "compared": [each.model_dump(mode="json") for each in self.calibrator.calibrations()],
            "labels_without_sample": self.calibrator.missing,
            "samples_without_label": self.calibrator.unlabelled,
        }
