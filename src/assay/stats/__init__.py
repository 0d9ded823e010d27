"""Intervals, paired comparison, gates and summaries: functions over numbers, no I/O."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "AdjustedComparison",
    "Check",
    "Comparison",
    "Conclusion",
    "GateRule",
    "Interval",
    "ResultLike",
    "RunSummary",
    "Verdict",
    "compare",
    "compare_runs",
    "detectable_difference",
    "judge_gate",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "summarise",
]
