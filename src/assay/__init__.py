"""assay: one sample, from pytest to policy.

The most used names, each loaded from its unit on first access: `import assay` alone loads none of
them.
"""

from importlib import import_module

# Not imported from `typing`, which would cost more modules than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from assay.datasets import load_samples
    from assay.pytest_plugin import evaluation_test
    from assay.runner import EvalConfig, evaluate, evaluate_sync, rescore
    from assay.stats import compare
    from assay.types import (
        Endpoint,
        EvaluateResult,
        EvaluationRow,
        Manifest,
        Message,
        Metric,
        MetricResult,
        Sample,
        Score,
        Status,
        StepOutput,
        Trajectory,
    )

__version__ = "0.2.0"

__all__ = [
    "Endpoint",
    "EvalConfig",
    "EvaluateResult",
    "EvaluationRow",
    "Manifest",
    "Message",
    "Metric",
    "MetricResult",
    "Sample",
    "Score",
    "Status",
    "StepOutput",
    "Trajectory",
    "__version__",
    "compare",
    "evaluate",
    "evaluate_sync",
    "evaluation_test",
    "load_samples",
    "rescore",
]

_UNIT_OF = dict.fromkeys(__all__, "assay.types") | {
    "EvalConfig": "assay.runner",
    "compare": "assay.stats",
    "evaluate": "assay.runner",
    "evaluate_sync": "assay.runner",
    "evaluation_test": "assay.pytest_plugin",
    "load_samples": "assay.datasets",
    "rescore": "assay.runner",
}
del _UNIT_OF["__version__"]

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise believe that every name exists.
    def __getattr__(name: str) -> object:
        unit = _UNIT_OF.get(name)
        if unit is None:
            raise AttributeError(f"module 'assay' has no attribute {name!r}")
        value = getattr(import_module(unit), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
