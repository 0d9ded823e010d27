"""The turn loop of a model agent with its limits, and function, command and endpoint agents."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Limits",
    "RolloutFailed",
    "run_agent",
]
