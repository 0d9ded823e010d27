"""Training: tokens and masks of recorded calls, and the loops that learn from them.

Importing this loads no torch: it is imported by what trains, when it is called.
"""

from .characters import character_model
from .chat_template import ChatTokenizer
from .demonstrations import demonstrated
from .grpo import GRPOResult, grpo_train, grpo_train_async
from .grpo_config import GRPOConfig
from .lora import Lora
from .memory import MemoryEstimate, estimate_memory
from .metrics import StepMetrics
from .metrics_file import MetricsFile
from .retokenising import Retokeniser, retokenised
from .rollouts import ForkedRollout, agent_rollout_to_sample, agent_rollout_to_samples
from .session import TrainingSession
from .sft import SFTResult, SFTWatch, sft_train
from .sft_config import SFTConfig
from .sft_output import SFTStep
from .tokens import TokenSource, check_tokens, token_source, tokenised

__all__ = [
    "ChatTokenizer",
    "ForkedRollout",
    "GRPOConfig",
    "GRPOResult",
    "Lora",
    "MemoryEstimate",
    "MetricsFile",
    "Retokeniser",
    "SFTConfig",
    "SFTResult",
    "SFTStep",
    "SFTWatch",
    "StepMetrics",
    "TokenSource",
    "TrainingSession",
    "agent_rollout_to_sample",
    "agent_rollout_to_samples",
    "character_model",
    "check_tokens",
    "demonstrated",
    "estimate_memory",
    "grpo_train",
    "grpo_train_async",
    "retokenised",
    "sft_train",
    "token_source",
    "tokenised",
]
