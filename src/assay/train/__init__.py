"""Training on recorded rollouts: tokens, masks, SFT and GRPO."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "ChatTokenizer",
    "ForkedRollout",
    "GRPOConfig",
    "GRPOResult",
    "Lora",
    "MemoryEstimate",
    "MetricSink",
    "MetricsFile",
    "PolicyWeights",
    "ReloadVLLM",
    "Retokenizer",
    "SFTConfig",
    "SFTResult",
    "StepMetrics",
    "TokenSource",
    "TrackedTraining",
    "TrainingSession",
    "UploadWeights",
    "agent_rollout_to_sample",
    "agent_rollout_to_samples",
    "character_model",
    "estimate_memory",
    "grpo_train",
    "grpo_train_async",
    "retokenize_sample",
    "sft_train",
    "token_source",
    "tokenize_sample",
]
