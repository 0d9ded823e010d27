"""The recording gateway: a proxy for model APIs that records what an agent asks its model."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Gateway",
    "GatewayLimits",
    "GatewaySession",
    "GatewaySettings",
    "expand_request",
]
