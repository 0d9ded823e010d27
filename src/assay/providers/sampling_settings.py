"""The sampling settings of an endpoint: recorded with a call, and checked for conflicts."""

from typing import Any

from assay.errors import ConfigError
from assay.types import Endpoint

_SAMPLING_FIELDS = ("temperature", "top_p", "max_tokens", "stop", "thinking", "reasoning_effort")
_RESERVED_PARAMS = ("messages", "model", "stream", "stream_options")


def collect_sampling(endpoint: Endpoint) -> dict[str, Any]:
    """Collect the settings in effect, without extra parameters that may be secret."""
    plain = endpoint.to_dict()
    sampling = {name: plain[name] for name in _SAMPLING_FIELDS if name in plain}
    return {**sampling, **plain.get("extra_params", {})}


def check_extra_params(endpoint: Endpoint) -> None:
    """Raise `ConfigError` for extra parameters that would change the shape of the answer."""
    given = endpoint.extra_params
    where = f"{endpoint.provider}:{endpoint.model}"
    for name in _RESERVED_PARAMS:
        if name in given and given[name] not in (None, False):
            raise ConfigError(f"`{name}` cannot be set in extra_params", where=where)
    if given.get("n") not in (None, 1):
        raise ConfigError(
            f"extra_params sets n={given['n']!r}, but a reply is one message",
            where=where,
            hint="call the model several times instead, each time with another seed",
        )
