"""The retry settings of eval-protocol, as far as assay has them."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from assay.errors import ConfigError

_WHERE = "exception_handler_config"
DEFAULT_RETRYABLE_EXCEPTIONS: frozenset[type[Exception]] = frozenset(
    {ConnectionError, TimeoutError, OSError}
)


def _never_give_up(error: Exception) -> bool:
    return False


@dataclass
class BackoffConfig:
    """How often failed calls are retried. assay chooses the delays."""

    strategy: str = "expo"
    base_delay: float = 1.0
    max_delay: float = 60.0
    max_tries: int = 3
    """How often a call is made at most, the first time included."""

    jitter: Callable[[float], float] | None = None
    factor: float = 2.0
    raise_on_giveup: bool = True
    giveup_func: Callable[[Exception], bool] = _never_give_up


@dataclass
class ExceptionHandlerConfig:
    """Which failed calls are retried, and how often."""

    retryable_exceptions: set[type[Exception]] = field(
        default_factory=lambda: set(DEFAULT_RETRYABLE_EXCEPTIONS)
    )
    """The default, which is assay's own choice, or an empty set for no retries."""

    backoff_config: BackoffConfig = field(default_factory=BackoffConfig)


def read_max_retries(config: Any) -> int:
    """Return the `max_retries` of an endpoint. Raises `ConfigError` for unsupported settings."""
    backoff = getattr(config, "backoff_config", None)
    if not isinstance(config, ExceptionHandlerConfig) or not isinstance(backoff, BackoffConfig):
        raise ConfigError(
            f"`exception_handler_config` of type {type(config).__name__} is not an "
            "ExceptionHandlerConfig with a BackoffConfig",
            where="@evaluation_test",
        )
    changed = [
        f"backoff_config.{each.name}"
        for each in fields(backoff)
        if each.name != "max_tries" and getattr(backoff, each.name) != each.default
    ]
    if config.retryable_exceptions not in (set(), DEFAULT_RETRYABLE_EXCEPTIONS):
        changed.append("retryable_exceptions")
    if changed:
        raise ConfigError(
            f"{', '.join(changed)} of eval-protocol is not supported by assay",
            where=_WHERE,
            hint="set only `backoff_config.max_tries`: assay chooses what to retry, and when",
        )
    tries = backoff.max_tries
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        raise ConfigError(
            f"backoff_config.max_tries={tries!r:.80} is not a whole number of 1 or more",
            where=_WHERE,
        )
    return tries - 1 if config.retryable_exceptions else 0
