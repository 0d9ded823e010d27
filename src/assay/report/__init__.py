"""Statistics, summaries, comparison and gates: pure functions over numbers and narrow results."""

from .comparison import Comparison, Conclusion, Listed, Pair, compare
from .figures import Distribution, Latency, ScoreStatistics, Total
from .gate import Check, GateRule, Outcome, Verdict, judge_gate
from .paired import SignFlipTest, detectable_difference, difference_interval, sign_flip_test
from .percentiles import RunningPercentiles, percentile
from .repeats import PassRate, pass_at_k, pass_hat_k
from .results import ResultLike, SampleMean, per_sample_means
from .statistics import Interval, RunningStats, mean_interval, samples_to_prove
from .summary import RunSummary, summarise

__all__ = [
    "Check",
    "Comparison",
    "Conclusion",
    "Distribution",
    "GateRule",
    "Interval",
    "Latency",
    "Listed",
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
    "samples_to_prove",
    "sign_flip_test",
    "summarise",
]
