"""Environments on the other side of a connection: clients, a server and a launcher."""

from .by_url import RemoteEnvironments
from .launch import Launched, launched, wait_until_ready
from .link import Kind
from .server import EnvironmentServer, ServerSettings, is_loopback
from .sessions import MakeEnvironment

__all__ = [
    "EnvironmentServer",
    "Kind",
    "Launched",
    "MakeEnvironment",
    "RemoteEnvironments",
    "ServerSettings",
    "is_loopback",
    "launched",
    "wait_until_ready",
]
