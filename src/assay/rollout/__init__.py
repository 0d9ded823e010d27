"""Letting a model act: environments, their tools, and the turn loop."""

from .agent import RolloutFailed, run_agent
from .environment import Environment, Step
from .environments import BasicEnvironment, CalculatorEnvironment, ToolEnvironment
from .gym import GymEnvironment
from .limits import Limits
from .named import environment_by_name
from .tools import ToolError, tool

__all__ = [
    "BasicEnvironment",
    "CalculatorEnvironment",
    "Environment",
    "GymEnvironment",
    "Limits",
    "RolloutFailed",
    "Step",
    "ToolEnvironment",
    "ToolError",
    "environment_by_name",
    "run_agent",
    "tool",
]
