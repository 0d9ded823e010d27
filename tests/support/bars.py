"""Criteria, outcomes and results of certifications in one line."""

from datetime import UTC, datetime
from typing import Any

from assay.certify.certified import CertificationResult
from assay.certify.criteria import CriterionOutcome, ResolvedCriterion, verdict_of
from assay.certify.criterion_decisions import Counts, Timings, compute_latency_figures, decide_score

SHA = "ab" * 32


def score_bar(
    name: str = "exact_answer", threshold: float = 0.9, **fields: Any
) -> ResolvedCriterion:
    """A bar that a score must reach."""
    given = {
        "name": name,
        "description": "It is right.",
        "kind": "score",
        "graded_by": {"by": "metric", "name": name, "sha256": SHA},
        "direction": "max",
        "threshold": threshold,
        "strict": True,
        "range": (0.0, 1.0),
        "gate": "point",
        "confidence": 0.95,
    }
    return ResolvedCriterion.model_validate({**given, **fields})


def latency_bar(limit_ms: float = 1000, statistic: str = "p95", **fields: Any) -> ResolvedCriterion:
    """A limit on a statistic of times."""
    return score_bar(
        f"latency_{statistic}_ms",
        limit_ms,
        kind="latency",
        graded_by={"by": "clock", "name": statistic},
        direction="min",
        range=None,
        **fields,
    )


def outcome(right: int = 30, n: int = 30, unscored: int = 0, **fields: Any) -> CriterionOutcome:
    """What came of a bar after so many right answers."""
    scores = [1.0] * right + [0.0] * (n - right)
    return decide_score(score_bar(**fields), scores, Counts(unscored=unscored))


def certification(*outcomes: CriterionOutcome, **fields: Any) -> CertificationResult:
    """The result of a certification with these outcomes."""
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    given = {
        "agent": {
            "id": "helper",
            "name": "Helper",
            "definition_sha256": SHA,
            "model": "mock:echo",
            "runner": "own model mock:echo",
        },
        "manifest": {"path": "agent.yaml", "sha256": SHA},
        "dataset": {"uri": "golden.jsonl", "sha256": SHA, "rows": 30},
        "judge": None,
        "repeats": 1,
        "seed": None,
        "outcomes": outcomes or (outcome(),),
        "latency": compute_latency_figures(Timings([[0.1]] * 30), "p95"),
        "run": "certify-helper-1",
        "started": moment,
        "finished": moment,
        "cost": {"agent_usd": None, "judge_usd": 0.0},
        "versions": {"assay": "0"},
    }
    merged = {**given, **fields}
    return CertificationResult.model_validate({"verdict": verdict_of(merged["outcomes"]), **merged})
