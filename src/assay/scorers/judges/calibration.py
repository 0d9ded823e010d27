"""Calibration of a judge: its agreement with human labels."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat

from assay.errors import ConfigError
from assay.types import Sample, reaches_threshold

_LABEL_WORDS = {
    **dict.fromkeys(("pass", "yes", "true", "good", "correct"), 1.0),
    **dict.fromkeys(("fail", "no", "false", "bad", "incorrect"), 0.0),
}
_MAX_LABEL_LINE = 100_000
# The 97.5 % quantile of the normal distribution, for two-sided 95 % intervals.
_Z = 1.959964


@dataclass(frozen=True)
class Label:
    """A human label of a sample, or of one of its criteria."""

    sample_id: str
    value: float
    """From 0 to 1."""

    criterion: str | None = None
    repeat: int | None = None
    """The rollout that was labelled. None: all rollouts of the sample."""


class Calibration(BaseModel):
    """The agreement of a judge with people, over the samples that both judged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criterion: str | None
    """None: the score of the whole sample."""

    threshold: FiniteFloat
    """Scores and labels of at least this are a pass."""

    compared: int
    not_judged: int
    """Labelled samples without a score by the judge."""

    both_pass: int
    both_fail: int
    only_judge: int
    """Samples that the judge passes and people fail."""

    only_people: int
    """Samples that the judge fails and people pass."""

    agreement: FiniteFloat | None
    agreement_low: FiniteFloat | None
    agreement_high: FiniteFloat | None
    kappa: FiniteFloat | None
    """Cohen's kappa: agreement beyond chance. None when one side gave only one verdict."""

    kappa_low: FiniteFloat | None
    kappa_high: FiniteFloat | None
    mean_distance: FiniteFloat | None
    """Mean absolute difference of score and label, before the threshold is applied."""

    def lines(self) -> list[str]:
        """Format the numbers and the confusion table as plain lines."""
        name = self.criterion or "score"
        if not self.compared:
            return [f"calibration   {name}: no labelled sample was judged"]
        kappa = "none: one side gave a single verdict throughout"
        if self.kappa is not None:
            kappa = f"{self.kappa:.3f}"
        if self.kappa_low is not None and self.kappa_high is not None:
            kappa += f" [{self.kappa_low:.3f}, {self.kappa_high:.3f}] approximately"
        bounds = f"[{self.agreement_low:.3f}, {self.agreement_high:.3f}]"
        left_out = f"; {self.not_judged} not judged" if self.not_judged else ""
        return [
            f"calibration   {name}, {self.compared} labelled samples{left_out}",
            f"  agreement   {self.agreement:.3f} {bounds}",
            f"  kappa       {kappa}",
            f"  distance    {self.mean_distance:.3f} on average",
            f"  {'':<12}{'judge passes':>14}{'judge fails':>14}   (threshold {self.threshold:g})",
            f"  {'people pass':<12}{self.both_pass:>14}{self.only_people:>14}",
            f"  {'people fail':<12}{self.only_judge:>14}{self.both_fail:>14}",
        ]


class Calibrator:
    """Collects pairs of label and score from a stream of judged samples."""

    def __init__(self, labels: Iterable[Label], threshold: float) -> None:
        self._labels: dict[tuple[str, int | None], dict[str | None, float]] = {}
        for label in labels:
            key = (label.sample_id, label.repeat)
            self._labels.setdefault(key, {})[label.criterion] = label.value
        self._threshold = threshold
        self._seen: set[tuple[str, int | None]] = set()
        self._pairs: dict[str | None, list[tuple[float, float | None]]] = {}
        for each in self._labels.values():
            for criterion in each:
                self._pairs.setdefault(criterion, [])
        self.unlabelled = 0
        """Samples without a label."""

    @property
    def missing(self) -> list[str]:
        """Labelled samples that were not added."""
        return sorted({sample_id for sample_id, _ in self._labels.keys() - self._seen})

    @property
    def criteria(self) -> set[str]:
        return {name for name in self._pairs if name is not None}

    def add(self, sample: Sample, repeat: int = 0) -> None:
        """Compare one judged sample with its labels."""
        key: tuple[str, int | None] = (sample.id, repeat)
        if key not in self._labels:
            key = (sample.id, None)
        labels = self._labels.get(key)
        if labels is None:
            self.unlabelled += 1
            return
        self._seen.add(key)
        for criterion, value in labels.items():
            score = None if sample.score is None else sample.score.reward
            if criterion is not None:
                metric = None if sample.score is None else sample.score.metrics.get(criterion)
                score = metric.score if metric is not None and metric.is_score_valid else None
            self._pairs[criterion].append((value, score))

    def compute_calibrations(self) -> list[Calibration]:
        """Compute one calibration for the score, where it is labelled, and for each criterion."""
        order = sorted(self._pairs, key=lambda name: (name is not None, name or ""))
        return [calibrate(self._pairs[name], self._threshold, criterion=name) for name in order]


def calibrate(
    pairs: Iterable[tuple[float, float | None]],
    threshold: float = 0.5,
    *,
    criterion: str | None = None,
) -> Calibration:
    """Compute agreement, Cohen's kappa and the confusion table of (label, score) pairs.

    A score of None is unscored: it is counted and excluded from all other numbers.
    """
    judged = []
    not_judged = 0
    for label, score in pairs:
        if score is None:
            not_judged += 1
        else:
            judged.append((label, score))
    cells = {(person, judge): 0 for person in (True, False) for judge in (True, False)}
    for label, score in judged:
        cells[reaches_threshold(label, threshold), reaches_threshold(score, threshold)] += 1
    n, same = len(judged), cells[True, True] + cells[False, False]
    kappa, kappa_low, kappa_high = _compute_kappa(cells)
    low, high = _compute_wilson_interval(same, n)
    return Calibration(
        criterion=criterion,
        threshold=threshold,
        compared=n,
        not_judged=not_judged,
        both_pass=cells[True, True],
        both_fail=cells[False, False],
        only_judge=cells[False, True],
        only_people=cells[True, False],
        agreement=same / n if n else None,
        agreement_low=low,
        agreement_high=high,
        kappa=kappa,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        mean_distance=math.fsum(abs(label - score) for label, score in judged) / n if n else None,
    )


def _compute_wilson_interval(hits: int, n: int) -> tuple[float | None, float | None]:
    # Wilson's interval: the usual normal interval has width 0 when all samples agree.
    if not n:
        return None, None
    share, spread = hits / n, _Z * _Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _compute_kappa(
    cells: dict[tuple[bool, bool], int],
) -> tuple[float | None, float | None, float | None]:
    """Return kappa with its 95 % interval; None when one side gave only one verdict."""
    n = sum(cells.values())
    if not n:
        return None, None, None
    people = (cells[True, True] + cells[True, False]) / n
    judge = (cells[True, True] + cells[False, True]) / n
    if people in (0.0, 1.0) or judge in (0.0, 1.0):
        return None, None, None
    same = cells[True, True] + cells[False, False]
    by_chance = people * judge + (1 - people) * (1 - judge)
    # Clopper and Pearson's 95 % interval of a share. It is wider than Wilson's, which leaves room
    # for the variation of kappa's agreement by chance. Simulated over 15 to 100 samples and kappas
    # from 0 to 0.9 it covered the truth at least 95 % of the time; normal intervals covered it
    # 88 % of the time, and Fleiss's less than that.
    from scipy.special import betaincinv

    low = float(betaincinv(same, n - same + 1, 0.025)) if same else 0.0
    high = float(betaincinv(same + 1, n - same, 0.975)) if same < n else 1.0
    kappas = ((share - by_chance) / (1 - by_chance) for share in (same / n, low, high))
    kappa, kappa_low, kappa_high = (min(max(each, -1.0), 1.0) for each in kappas)
    return kappa, kappa_low, kappa_high


def read_labels(path: Path) -> list[Label]:
    """Read human labels: one JSON object per line with `id`, `label` and optional `criterion`.

    Raises `ConfigError` with the line of the problem.
    """
    try:
        # Spreadsheets and some editors write a byte order mark.
        with path.open(encoding="utf-8-sig") as file:
            lines = list(enumerate(file, start=1))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the label file cannot be read: {error}", where=str(path)) from None
    labels: dict[tuple[str, str | None], Label] = {}
    for number, line in lines:
        if line.strip():
            label = _parse_label(line, f"{path}:{number}")
            if (label.sample_id, label.criterion) in labels:
                raise ConfigError(
                    f"sample {label.sample_id!r} has a second label", where=f"{path}:{number}"
                )
            labels[label.sample_id, label.criterion] = label
    if not labels:
        raise ConfigError(
            "the file contains no labels",
            where=str(path),
            hint='write one JSON object on each line: {"id": "…", "label": "pass"}',
        )
    return list(labels.values())


def _parse_label(line: str, where: str) -> Label:
    hint = 'for example {"id": "ses_1", "label": "pass"}, or a label from 0 to 1'
    try:
        data: Any = json.loads(line) if len(line) <= _MAX_LABEL_LINE else None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ConfigError("the line is not a JSON object", where=where, hint=hint)
    unknown = sorted(data.keys() - {"id", "label", "criterion"})
    name, criterion = data.get("id"), data.get("criterion")
    value = data.get("label")
    if isinstance(value, str):
        value = _LABEL_WORDS.get(value.strip().lower())
    if not isinstance(name, str) or not name:
        raise ConfigError("the label has no `id`", where=where, hint=hint)
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ConfigError(f"the `label` of {name!r} is invalid", where=where, hint=hint)
    if criterion is not None and not isinstance(criterion, str):
        raise ConfigError(f"the `criterion` of {name!r} is not text", where=where, hint=hint)
    if unknown:
        raise ConfigError(
            f"the label has unknown keys: {', '.join(unknown)}", where=where, hint=hint
        )
    return Label(name, float(value), criterion)
