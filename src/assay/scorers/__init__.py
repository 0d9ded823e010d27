"""Scorers: metrics, checks, judges and reward validation."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "METRICS",
    "Calibration",
    "Calibrator",
    "CallSpec",
    "Checks",
    "Criterion",
    "Judge",
    "JudgeSettings",
    "Label",
    "PairJudge",
    "PairTally",
    "Preference",
    "RegisteredMetric",
    "Rubric",
    "ScoreCaller",
    "ScoreFunction",
    "Scorer",
    "Spending",
    "VertexJudge",
    "calibrate",
    "checks_from",
    "exact_answer",
    "judge",
    "prefer",
    "read_call_spec",
    "read_labels",
    "read_outcome",
    "read_rubric",
    "registered_metric",
    "reward_function",
    "rubric_names",
    "vertex_judge",
]
