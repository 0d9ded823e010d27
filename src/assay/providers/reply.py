"""What a client gives back, and how it is told to work."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assay.errors import ConfigError
from assay.types import Message, ModelCall


class Reply(NamedTuple):
    """A model's answer, and the call that brought it."""

    message: Message
    call: ModelCall
    """Tokens, logprobs, usage, cost, latency, attempts and finish reason."""


@dataclass(frozen=True)
class ClientSettings:
    """How a client asks: how many at once, how patiently, and what it remembers."""

    concurrency: int | None = None
    """Requests in flight: a fixed number, or None to find the number that the server bears."""

    max_retries: int = 5
    """After the first attempt. `Endpoint.max_retries` comes before it."""

    request_timeout_s: float = 600.0
    """For one attempt, from sending to the last byte. `Endpoint.timeout_s` comes before it."""

    cache: Path | None = None
    """Folder of the response cache; None asks the model each time."""

    prices: Path | None = None
    """A price table whose entries come before the shipped ones."""

    max_concurrency: int = 500
    """Where the search for the right number ends when `concurrency` is None."""

    max_wait_s: float = 600.0
    """The longest that one call waits between its attempts, all waits together."""

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
