"""Asking models, elsewhere or in this process, with retries, limits, usage, cost and a cache."""

from .check import EndpointCheck, check_endpoint
from .client import Client, ModelClient
from .connection import connect
from .in_process import Generated, LocalClient, LocalModel, Sampling
from .model_names import parse_model
from .reply import ClientSettings, Reply

__all__ = [
    "Client",
    "ClientSettings",
    "EndpointCheck",
    "Generated",
    "LocalClient",
    "LocalModel",
    "ModelClient",
    "Reply",
    "Sampling",
    "check_endpoint",
    "connect",
    "parse_model",
]
