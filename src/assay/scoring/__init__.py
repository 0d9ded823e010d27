"""Scorers: functions from a sample to a result, with a reason a person can check."""

from .answer import exact_answer
from .caller import ScoreCaller, ScoreFunction
from .outcome import read_outcome
from .scorer import Scorer

__all__ = ["ScoreCaller", "ScoreFunction", "Scorer", "exact_answer", "read_outcome"]
