"""Environments and their tools, Gymnasium, and environments behind a URL with their server."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "BasicEnvironment",
    "CalculatorEnvironment",
    "Environment",
    "EnvironmentServer",
    "GymEnvironment",
    "RemoteEnvironments",
    "ServerProcess",
    "ServerSettings",
    "Step",
    "ToolEnvironment",
    "ToolError",
    "launch_server",
    "tool",
    "wait_until_ready",
]
