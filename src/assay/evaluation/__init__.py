"""Evaluation: the one place that joins source, rollout, scoring and record."""

from .config import EvalConfig
from .progress import Progress, Stop
from .report import EvalReport, RunSamples
from .rescoring import rescore
from .running import Resume, evaluate

__all__ = [
    "EvalConfig",
    "EvalReport",
    "Progress",
    "Resume",
    "RunSamples",
    "Stop",
    "evaluate",
    "rescore",
]
