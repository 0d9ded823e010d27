"""Evaluation and rescoring: joins dataset, agent, scorer and store."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "EvalConfig",
    "EvalReport",
    "Progress",
    "RaySettings",
    "RescoreOptions",
    "Resume",
    "RunLimits",
    "RunSamples",
    "Shard",
    "ShardReport",
    "Stop",
    "evaluate",
    "evaluate_sync",
    "rescore",
    "run_shard",
    "show_progress",
]
