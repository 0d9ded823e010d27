"""Scorers: functions from a sample to a result, with a reason a person can check."""

from .answer import exact_answer
from .arguments import Wanted, wanted
from .caller import ScoreCaller, ScoreFunction
from .checks import Checks, checks_from
from .metrics import METRICS, RegisteredMetric, registered_metric
from .outcome import read_outcome
from .reward import reward_function
from .scorer import Scorer

__all__ = [
    "METRICS",
    "Checks",
    "RegisteredMetric",
    "ScoreCaller",
    "ScoreFunction",
    "Scorer",
    "Wanted",
    "checks_from",
    "exact_answer",
    "read_outcome",
    "registered_metric",
    "reward_function",
    "wanted",
]
