"""The decorator options and rollout processors of eval-protocol, mapped onto assay's own.

Imported when a test file uses one of them, never when pytest starts.
"""

from .completion_params import CompletionParams, describe_params
from .dataset import default_dataset_adapter
from .options import EvaluationThreshold, translate_options
from .processors import (
    AgentRolloutProcessor,
    MCPGymRolloutProcessor,
    NoOpRolloutProcessor,
    RolloutProcessor,
    RolloutProcessorConfig,
    SingleTurnRolloutProcessor,
)
from .retries import DEFAULT_RETRYABLE_EXCEPTIONS, BackoffConfig, ExceptionHandlerConfig

__all__ = [
    "DEFAULT_RETRYABLE_EXCEPTIONS",
    "AgentRolloutProcessor",
    "BackoffConfig",
    "CompletionParams",
    "EvaluationThreshold",
    "ExceptionHandlerConfig",
    "MCPGymRolloutProcessor",
    "NoOpRolloutProcessor",
    "RolloutProcessor",
    "RolloutProcessorConfig",
    "SingleTurnRolloutProcessor",
    "default_dataset_adapter",
    "describe_params",
    "translate_options",
]
