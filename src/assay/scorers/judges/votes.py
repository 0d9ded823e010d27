"""Aggregate votes into one result: the mean and the agreement for each criterion."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from assay.types import EvaluateResult, Metric

from .evidence import QuoteIndex
from .judge_reply import JudgeReply, Opinion
from .panel import Vote
from .rubric import Criterion, Rubric

JudgeVotes = Sequence[Vote[JudgeReply]]


def compute_agreement(scores: Sequence[float]) -> float | None:
    """Return 1 minus the mean distance between any two scores; None below two scores.

    For scores of 0 and 1 it is the share of pairs that agree.
    """
    pairs = list(combinations(scores, 2))
    if not pairs:
        return None
    return 1 - math.fsum(abs(one - other) for one, other in pairs) / len(pairs)


@dataclass(frozen=True)
class CriterionVotes:
    """The votes on one criterion."""

    criterion: Criterion
    opinions: tuple[tuple[str, Opinion], ...]
    """Pairs of judge name and opinion."""

    asked: int

    @property
    def scored(self) -> list[float]:
        return [each.score for _, each in self.opinions if each.score is not None]

    @property
    def score(self) -> float | None:
        """The mean of the judges' means; None unless more than half of the votes have a score."""
        if 2 * len(self.scored) <= self.asked:
            return None
        # Judges first: a judge with more usable votes must not weigh more than the others.
        by_judge: dict[str, list[float]] = {}
        for judge, opinion in self.opinions:
            if opinion.score is not None:
                by_judge.setdefault(judge, []).append(opinion.score)
        means = [math.fsum(scores) / len(scores) for scores in by_judge.values()]
        return math.fsum(means) / len(means)

    @property
    def not_applicable(self) -> bool:
        """Whether most judges abstained, as opposed to failed."""
        return self.score is None and 2 * (len(self.opinions) - len(self.scored)) > self.asked

    def find_representative(self) -> Opinion | None:
        """Return the opinion nearest to the score; without a score, the first one."""
        score = self.score
        if score is None:
            return self.opinions[0][1] if self.opinions else None
        having = [each for _, each in self.opinions if each.score is not None]
        return min(having, key=lambda each: abs((each.score or 0.0) - score))


def build_judge_result(rubric: Rubric, ballots: JudgeVotes, material: QuoteIndex) -> EvaluateResult:
    """Build the result of a sample. Without a majority of usable votes it is unscored, never 0."""
    tallies = []
    for criterion in rubric.criteria:
        opinions = tuple(
            (vote.judge, vote.given.opinions[criterion.name])
            for vote in ballots
            if vote.given is not None and criterion.name in vote.given.opinions
        )
        tallies.append(CriterionVotes(criterion, opinions, len(ballots)))
    metrics = [_build_criterion_metric(tally, rubric, material) for tally in tallies]
    failed = [tally for tally in tallies if tally.score is None and not tally.not_applicable]
    # The reason must be readable on its own: lists of results show it without the metrics.
    reason = "; ".join(
        f"{tally.criterion.name} {'not judged' if tally.score is None else f'{tally.score:.2f}'}"
        for tally in tallies
    )
    fields: dict[str, Any] = {"metrics": metrics, "reason": reason}
    if failed or all(tally.score is None for tally in tallies):
        fields["is_score_valid"] = False
    if failed:
        names = ", ".join(tally.criterion.name for tally in failed)
        problems = dict.fromkeys(
            str(vote.failure or vote.problem) for vote in ballots if vote.failure or vote.problem
        )
        why = "; ".join(problems) or "the judges do not agree whether it can be judged"
        fields["error"] = f"no majority of usable votes on {names}: {why}"
    return EvaluateResult(**fields)


def _build_criterion_metric(tally: CriterionVotes, rubric: Rubric, material: QuoteIndex) -> Metric:
    representative = tally.find_representative()
    quotes = dict.fromkeys(quote for _, opinion in tally.opinions for quote in opinion.quotes)
    evidence = [material.find(quote) for quote in quotes]
    missing = sum(not each.turns for each in evidence)
    reason = "no judge gave a usable answer" if representative is None else representative.reason
    if missing:
        reason += f" [{missing} of {len(evidence)} quotes not found in the transcript]"
    fields: dict[str, Any] = {
        "name": tally.criterion.name,
        # Weight 0 tracks the metric without counting it.
        "weight": 0.0
        if tally.criterion.optional and tally.not_applicable
        else tally.criterion.weight,
        "reason": reason,
        "evidence": [{"quote": each.quote, "turns": list(each.turns)} for each in evidence],
    }
    if tally.score is not None:
        fields["score"] = tally.score
    if tally.asked > 1:
        fields |= {
            "agreement": compute_agreement(tally.scored),
            # Whether some votes pass and others do not.
            "split": len({score >= rubric.threshold for score in tally.scored}) > 1,
            "opinions": [
                {"judge": judge, "score": each.score, "reason": each.reason}
                for judge, each in tally.opinions
            ],
        }
    return Metric(**fields)
