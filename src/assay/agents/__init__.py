"""Agents: a sample in, a trajectory out. Models, functions, commands and HTTP services."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Agent",
    "AgentFault",
    "CodingAgent",
    "CommandAgent",
    "FunctionAgent",
    "HttpAgent",
    "Limits",
    "ModelAgent",
    "RolloutFailed",
    "RunContext",
    "resolve_agent",
    "run_agent",
]
