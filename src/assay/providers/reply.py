"""The reply of a client, and its settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assay.errors import ConfigError
from assay.types import Message, ModelCall


class Reply(NamedTuple):
    """A model's message and the record of the call."""

    message: Message
    call: ModelCall
    """Tokens, logprobs, usage, cost, latency, attempts and finish reason."""


@dataclass(frozen=True)
class ClientSettings:
    """Concurrency, retries, timeouts and cache of a client."""

    concurrency: int | None = None
    """Requests in flight: a fixed number, or None to adapt to the server."""

    max_retries: int = 5
    """After the first attempt. `Endpoint.max_retries` overrides it."""

    request_timeout_s: float = 600.0
    """For one attempt, until the last byte. `Endpoint.timeout_s` overrides it."""

    cache: Path | None = None
    """Folder of the response cache; None: no cache."""

    prices: Path | None = None
    """A price table that overrides the shipped one."""

    max_concurrency: int = 500
    """The maximum when `concurrency` is None."""

    max_wait_s: float = 600.0
    """The maximum total wait between the attempts of one call."""

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("max_retries", 0), ("max_concurrency", 1)):
            value = getattr(self, name)
            if value is None and name == "concurrency":
                continue
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"{name}={value!r} is not a whole number of at least {least}",
                    where="ClientSettings",
                )
        for name in ("request_timeout_s", "max_wait_s"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value < float("inf"):
                raise ConfigError(
                    f"{name}={value!r} is not a number of seconds above 0", where="ClientSettings"
                )
        for name in ("cache", "prices"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | Path):
                raise ConfigError(f"{name}={value!r} is not a path", where="ClientSettings")
