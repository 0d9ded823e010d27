"""Asking models: clients for endpoints, with retries, limits, usage, cost and a cache."""

from .check import EndpointCheck, check_endpoint
from .client import Client, ModelClient
from .connection import connect
from .model_names import parse_model
from .reply import ClientSettings, Reply

__all__ = [
    "Client",
    "ClientSettings",
    "EndpointCheck",
    "ModelClient",
    "Reply",
    "check_endpoint",
    "connect",
    "parse_model",
]
