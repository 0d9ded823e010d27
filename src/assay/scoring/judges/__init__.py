"""Layer 2: models that judge samples by a rubric, and how far they can be trusted."""

from .bench import JudgeSettings
from .calibration import Calibration, Calibrator, Label, calibrate, read_labels
from .judging import Judge, judge
from .pairs import PairJudge, PairTally, Preference, prefer
from .rubric import Criterion, Rubric
from .rubric_file import read_rubric, rubric_names
from .spending import Spending
from .vertex import VertexJudge, vertex_judge

__all__ = [
    "Calibration",
    "Calibrator",
    "Criterion",
    "Judge",
    "JudgeSettings",
    "Label",
    "PairJudge",
    "PairTally",
    "Preference",
    "Rubric",
    "Spending",
    "VertexJudge",
    "calibrate",
    "judge",
    "prefer",
    "read_labels",
    "read_rubric",
    "rubric_names",
    "vertex_judge",
]
