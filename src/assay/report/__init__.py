"""Statistics, summaries, comparison and gates: pure functions over numbers and narrow results."""

from .bounds import percentile_bounds, rows_for_percentile, rows_to_prove, score_bounds
from .certified import (
    CertificationResult,
    CertifiedAgent,
    CertifiedDataset,
    CertifiedJudge,
    CertifiedManifest,
    Cost,
    Notice,
)
from .comparison import Comparison, Conclusion, Listed, Pair, compare
from .criteria import (
    Bar,
    CertificationVerdict,
    CriterionOutcome,
    CriterionStatus,
    Evidence,
    GradedBy,
    LatencyFigures,
    verdict_of,
)
from .figures import Distribution, Latency, ScoreStatistics, Total
from .gate import Check, GateRule, Outcome, Verdict, judge_gate
from .paired import SignFlipTest, detectable_difference, difference_interval, sign_flip_test
from .percentiles import RunningPercentiles, percentile
from .repeats import PassRate, pass_at_k, pass_hat_k
from .results import ResultLike, SampleMean, per_sample_means
from .statistics import Interval, RunningStats, mean_interval, samples_to_prove
from .summary import RunSummary, summarise

__all__ = [
    "Bar",
    "CertificationResult",
    "CertificationVerdict",
    "CertifiedAgent",
    "CertifiedDataset",
    "CertifiedJudge",
    "CertifiedManifest",
    "Check",
    "Comparison",
    "Conclusion",
    "Cost",
    "CriterionOutcome",
    "CriterionStatus",
    "Distribution",
    "Evidence",
    "GateRule",
    "GradedBy",
    "Interval",
    "Latency",
    "LatencyFigures",
    "Listed",
    "Notice",
    "Outcome",
    "Pair",
    "PassRate",
    "ResultLike",
    "RunSummary",
    "RunningPercentiles",
    "RunningStats",
    "SampleMean",
    "ScoreStatistics",
    "SignFlipTest",
    "Total",
    "Verdict",
    "compare",
    "detectable_difference",
    "difference_interval",
    "judge_gate",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "per_sample_means",
    "percentile",
    "percentile_bounds",
    "rows_for_percentile",
    "rows_to_prove",
    "samples_to_prove",
    "score_bounds",
    "sign_flip_test",
    "summarise",
    "verdict_of",
]
