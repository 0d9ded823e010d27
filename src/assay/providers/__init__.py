"""Model clients, remote and in this process: adapters, retries, limits, usage, cost, a cache."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "ClientSettings",
    "LocalClient",
    "LocalModel",
    "ModelClient",
    "Provider",
    "Reply",
    "Sampling",
    "check_endpoint",
    "connect",
    "parse_model",
]
