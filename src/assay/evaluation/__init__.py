"""Evaluation: the one place that joins source, rollout, scoring and record."""

from .config import EvalConfig
from .progress import Progress, Stop
from .report import EvalReport, RunSamples
from .rescoring import Rescoring, rescore
from .running import Resume, evaluate

__all__ = [
    "EvalConfig",
    "EvalReport",
    "Progress",
    "Rescoring",
    "Resume",
    "RunSamples",
    "Stop",
    "evaluate",
    "rescore",
]
