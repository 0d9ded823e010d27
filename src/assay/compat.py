"""Replacements for other packages, so that code written for them imports assay instead.

One line in `conftest.py`, `assay.compat.install()`, lets such code run unchanged where the packages
are not installed. An installed package is never replaced.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_TYPES, _ENVIRONMENTS, _TRAIN = "assay.types", "assay.environments", "assay.train"
_EVAL_PROTOCOL_HOME = "assay.pytest_plugin.eval_protocol"

_EVAL_PROTOCOL_NAMES = {
    "ChatCompletionContentPartParam": "assay.types:ContentBlock",
    "ChatCompletionContentPartTextParam": "assay.types:TextBlock",
    "CompletionParams": _EVAL_PROTOCOL_HOME,
    "EvaluateResult": _TYPES,
    "EvaluationRow": _TYPES,
    "EvaluationThreshold": _EVAL_PROTOCOL_HOME,
    "InputMetadata": _TYPES,
    "Message": _TYPES,
    "MetricResult": _TYPES,
    "StepOutput": _TYPES,
}
_DECORATOR = {"evaluation_test": "assay.pytest_plugin"}
_PROCESSORS = dict.fromkeys(
    """
    AgentRolloutProcessor MCPGymRolloutProcessor NoOpRolloutProcessor RolloutProcessor
    SingleTurnRolloutProcessor
    """.split(),
    _EVAL_PROTOCOL_HOME,
)
_CONFIG = {"RolloutProcessorConfig": _EVAL_PROTOCOL_HOME}
_RETRIES = dict.fromkeys(("BackoffConfig", "ExceptionHandlerConfig"), _EVAL_PROTOCOL_HOME)
_ADAPTER = {"default_dataset_adapter": _EVAL_PROTOCOL_HOME}
_PYTEST = {**_DECORATOR, **_PROCESSORS, **_CONFIG, **_RETRIES, **_ADAPTER}


def _pick_names(names: dict[str, str], *chosen: str) -> dict[str, str]:
    return {name: names[name] for name in chosen}


_ROLLOUTS = {
    "AgentSession": _TYPES,
    "BasicEnvironment": _ENVIRONMENTS,
    "CalculatorEnvironment": _ENVIRONMENTS,
    "ContentBlock": _TYPES,
    "Endpoint": _TYPES,
    "EvalConfig": "assay.runner",
    "EvalReport": "assay.runner",
    "Message": _TYPES,
    "Metric": _TYPES,
    "Sample": _TYPES,
    "Score": _TYPES,
    "Status": _TYPES,
    "ToolCall": _TYPES,
    "Trajectory": _TYPES,
    "Usage": _TYPES,
    "evaluate": "assay.runner",
    "run_agent": "assay.agents",
}
_COREASON = dict.fromkeys(
    """
    AgentDefinition EvaluationProfile Manifest PlaceholderDefinition SkillDefinition
    SuccessCriterion ToolDefinition ToolPackDefinition
    """.split(),
    _TYPES,
)
_SAMPLES = _pick_names(_ROLLOUTS, "Sample", "Status")
_TRAINING = dict.fromkeys(("GRPOConfig", "agent_rollout_to_sample", "grpo_train"), _TRAIN)
_EVALUATION = _pick_names(
    _ROLLOUTS, "EvalConfig", "EvalReport", "Metric", "Sample", "Score", "evaluate"
)
_AGENTS = _pick_names(_ROLLOUTS, "AgentSession", "Endpoint", "Message", "Trajectory", "run_agent")
# Each importable module, and the assay module that defines each of its names; `module:name` where
# assay uses another name.
_MODULES = {
    "coreason_manifest": _COREASON,
    "eval_protocol": {
        **_EVAL_PROTOCOL_NAMES,
        **_DECORATOR,
        **_pick_names(_PROCESSORS, "SingleTurnRolloutProcessor"),
        "reward_function": "assay.scorers",
    },
    "eval_protocol.mcp": {},
    "eval_protocol.mcp.types": _pick_names(_ROLLOUTS, "Trajectory"),
    "eval_protocol.models": _EVAL_PROTOCOL_NAMES,
    "eval_protocol.pytest": _PYTEST,
    "eval_protocol.pytest.default_agent_rollout_processor": _pick_names(
        _PROCESSORS, "AgentRolloutProcessor"
    ),
    "eval_protocol.pytest.default_dataset_adapter": _ADAPTER,
    "eval_protocol.pytest.default_mcp_gym_rollout_processor": _pick_names(
        _PROCESSORS, "MCPGymRolloutProcessor"
    ),
    "eval_protocol.pytest.default_no_op_rollout_processor": _pick_names(
        _PROCESSORS, "NoOpRolloutProcessor"
    ),
    "eval_protocol.pytest.default_single_turn_rollout_process": _pick_names(
        _PROCESSORS, "SingleTurnRolloutProcessor"
    ),
    "eval_protocol.pytest.evaluation_test": _DECORATOR,
    "eval_protocol.pytest.exception_config": {
        **_RETRIES,
        "DEFAULT_RETRYABLE_EXCEPTIONS": _EVAL_PROTOCOL_HOME,
    },
    "eval_protocol.pytest.rollout_processor": _pick_names(_PROCESSORS, "RolloutProcessor"),
    "eval_protocol.pytest.types": _CONFIG,
    "eval_protocol.pytest_utils": _DECORATOR,
    "rollouts": _ROLLOUTS,
    "rollouts.agents": _AGENTS,
    "rollouts.dtypes": _ROLLOUTS,
    "rollouts.evaluation": _EVALUATION,
    "rollouts.store": {
        **_pick_names(_ROLLOUTS, "AgentSession", "Endpoint", "Message"),
        "Store": "assay.store",
    },
    "rollouts.training": {**_SAMPLES, **_TRAINING},
    "rollouts.training.agent_integration": {
        **_pick_names(_ROLLOUTS, "Sample", "Trajectory"),
        **_pick_names(_TRAINING, "agent_rollout_to_sample"),
    },
    "rollouts.training.types": {**_SAMPLES, **_pick_names(_ROLLOUTS, "Score", "Trajectory")},
}
# Names without a counterpart, and what does their work.
_ADVICE = {
    "rollouts.AgentState": "`run_agent` takes a client and messages, and returns the Trajectory",
}


class _ShimModule(ModuleType):
    """A module that resolves its names in assay on first access."""

    def __init__(self, name: str, homes: dict[str, str]) -> None:
        super().__init__(name, f"`{name}`, provided by assay.")
        # A `__path__`, even an empty one, makes it a package: `import a.b` needs one.
        self.__spec__ = ModuleSpec(name, loader=None, origin="assay.compat", is_package=True)
        self.__path__: list[str] = []
        self.__all__ = sorted(homes)
        self._homes = homes

    def __getattr__(self, name: str) -> Any:
        # Not `self._homes`: copying and pickling ask for attributes before `__init__` has run,
        # which would recurse into this method.
        home = self.__dict__.get("_homes", {}).get(name)
        if home is None:
            raise AttributeError(f"assay does not support `{self.__name__}.{name}`")
        module, _, own_name = home.partition(":")
        return getattr(import_module(module), own_name or name)

    def __dir__(self) -> list[str]:
        return self.__all__


def install() -> tuple[str, ...]:
    """Provide the packages that are not installed; return the names of those provided."""
    provided = tuple(
        package
        for package in dict.fromkeys(name.partition(".")[0] for name in _MODULES)
        if isinstance(sys.modules.get(package), _ShimModule) or not _is_installed(package)
    )
    for name, homes in _MODULES.items():
        package, _, attribute = name.rpartition(".")
        if name.partition(".")[0] in provided and name not in sys.modules:
            sys.modules[name] = _ShimModule(name, homes)
            # `eval_protocol.pytest.evaluation_test` is a module and a function of its package: the
            # attribute must stay the function, as in the real package.
            if package and attribute not in _MODULES[package]:
                setattr(sys.modules[package], attribute, sys.modules[name])
    if not any(isinstance(finder, _UnsupportedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_UnsupportedModuleFinder())
    return provided


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    # A spec without an origin is a namespace package: any folder of that name, such as one with
    # a project's servers, would count as installed.
    return spec is not None and spec.origin is not None


class _UnsupportedModuleFinder:
    """Raises a helpful error for modules of a provided package that assay does not have."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        package = name.partition(".")[0]
        if isinstance(sys.modules.get(package), _ShimModule):
            # `name=package`, not `name=name`: for `from package import name` Python replaces an
            # error that carries the submodule's name by one that does not mention assay.
            advice = _ADVICE.get(name, f"install the package `{package}` to use it")
            raise ModuleNotFoundError(f"assay does not support `{name}`; {advice}", name=package)
