"""Intervals, paired comparison, gates and summaries: functions over numbers, no I/O."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Check",
    "Comparison",
    "Conclusion",
    "Distribution",
    "GateRule",
    "Interval",
    "Latency",
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
    "UnpairedSamples",
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
]
