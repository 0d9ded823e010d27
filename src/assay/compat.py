"""Other packages' import names, answered by assay.

One line in `conftest.py`, `assay.compat.install()`, lets code written for these packages run
unchanged where they are not installed. A package that is installed is left alone.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_EVAL_PROTOCOL = {
    "EvaluateResult": "assay.models",
    "EvaluationRow": "assay.models",
    "Message": "assay.models",
    "MetricResult": "assay.models",
    "StepOutput": "assay.models",
}
_PYTEST = {"evaluation_test": "assay.pytest_plugin"}
_ROLLOUTS = {
    "AgentSession": "assay.models",
    "BasicEnvironment": "assay.rollout",
    "CalculatorEnvironment": "assay.rollout",
    "ContentBlock": "assay.models",
    "Endpoint": "assay.models",
    "EvalConfig": "assay.evaluation",
    "Message": "assay.models",
    "Metric": "assay.models",
    "Sample": "assay.models",
    "Score": "assay.models",
    "Status": "assay.models",
    "ToolCall": "assay.models",
    "Trajectory": "assay.models",
    "Usage": "assay.models",
    "evaluate": "assay.evaluation",
    "run_agent": "assay.rollout",
}
_COREASON = dict.fromkeys(
    """
    AgentDefinition EvaluationProfile Manifest PlaceholderDefinition SkillDefinition
    SuccessCriterion ToolDefinition ToolPackDefinition
    """.split(),
    "assay.models.manifest",
)
_SAMPLES = {"Sample": "assay.models", "Status": "assay.models"}
_TRAINING = dict.fromkeys(("GRPOConfig", "agent_rollout_to_sample", "grpo_train"), "assay.training")
_MODULES = {
    "coreason_manifest": _COREASON,
    "eval_protocol": {**_EVAL_PROTOCOL, **_PYTEST, "reward_function": "assay.scoring"},
    "eval_protocol.models": _EVAL_PROTOCOL,
    "eval_protocol.pytest": _PYTEST,
    "eval_protocol.pytest_utils": _PYTEST,
    "rollouts": _ROLLOUTS,
    "rollouts.dtypes": _ROLLOUTS,
    "rollouts.training": {**_SAMPLES, **_TRAINING},
    "rollouts.training.types": _SAMPLES,
}
"""Importable name of each stand-in, and where each of its names really lives."""


class _StandIn(ModuleType):
    """A module whose names are looked up in assay when they are asked for."""

    def __init__(self, name: str, homes: dict[str, str]) -> None:
        super().__init__(name, f"`{name}`, answered by assay.")
        self.__spec__ = ModuleSpec(name, loader=None, origin="assay.compat", is_package=True)
        self.__path__: list[str] = []
        self.__all__ = sorted(homes)
        self._homes = homes

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__.get("_homes", {}).get(name)
        if home is None:
            raise AttributeError(f"assay has nothing under `{self.__name__}.{name}`")
        return getattr(import_module(home), name)

    def __dir__(self) -> list[str]:
        return self.__all__


def install() -> tuple[str, ...]:
    """Answer imports of the packages that are not installed; return the names answered."""
    answered = tuple(
        package
        for package in dict.fromkeys(name.partition(".")[0] for name in _MODULES)
        if isinstance(sys.modules.get(package), _StandIn) or find_spec(package) is None
    )
    for name, homes in _MODULES.items():
        package, _, attribute = name.rpartition(".")
        if name.partition(".")[0] in answered and name not in sys.modules:
            sys.modules[name] = _StandIn(name, homes)
            if package:
                setattr(sys.modules[package], attribute, sys.modules[name])
    return answered
