"""Scorers: metrics, checks, judges and reward validation."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Calibration",
    "Checks",
    "Criterion",
    "Judge",
    "JudgeSettings",
    "PairJudge",
    "PairTally",
    "RegisteredMetric",
    "Rubric",
    "ScoreFunction",
    "Scorer",
    "VertexJudge",
    "calibrate",
    "check_passed",
    "checks_from",
    "exact_answer",
    "extract_number",
    "judge",
    "prefer",
    "read_labels",
    "read_rubric",
    "reward_function",
    "rubric_names",
    "vertex_judge",
]
