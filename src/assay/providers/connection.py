"""From an endpoint to a client. Everything about it is checked here; nothing is sent yet."""

from pathlib import Path

from assay.errors import ConfigError
from assay.types import Endpoint

from .adapter import InProcess, Speaker
from .address import address_of
from .cache import ResponseCache
from .client import Client, Equipment
from .clock import REAL_TIME, Timing
from .concurrency import AdaptiveLimiter, Limiter
from .embedded_model import EMBEDDED
from .http import Line, Target
from .keys import credential_headers, key_hint
from .prices import Price, price_of
from .provider_table import provider_named
from .proxies import proxy_for
from .reply import ClientSettings
from .reply_redaction import Redactor, redactor_for
from .sampling_settings import check_extra_params


def connect(
    endpoint: Endpoint,
    settings: ClientSettings | None = None,
    *,
    timing: Timing = REAL_TIME,
) -> Client:
    """A client for an endpoint. Wrong settings raise `ConfigError` here, before any request."""
    settings = settings or ClientSettings()
    speaker = _speaker(endpoint, settings, timing)
    limiter = _limiter(speaker, settings, timing)
    cache = None if settings.cache is None else ResponseCache(Path(settings.cache), endpoint)
    redactor = Redactor([endpoint.api_key, endpoint.oauth_token, *endpoint.headers.values()])
    tools = Equipment(limiter, cache, timing, shown_name(endpoint), redactor)
    return Client(endpoint, settings, speaker, tools)


def _limiter(speaker: Speaker, settings: ClientSettings, timing: Timing) -> Limiter:
    if settings.concurrency is not None:
        return Limiter(settings.concurrency)
    if isinstance(speaker, InProcess):
        return Limiter(speaker.at_once)
    return AdaptiveLimiter(ceiling=settings.max_concurrency, timing=timing)


def _speaker(endpoint: Endpoint, settings: ClientSettings, timing: Timing) -> Speaker:
    speaks = provider_named(endpoint.provider).speaks
    price = price_of(endpoint, settings.prices)
    timeout_s = endpoint.timeout_s or settings.request_timeout_s
    if speaks == "mock":
        from .mock import MockSpeaker

        return MockSpeaker(endpoint, timeout_s, price, timing)
    if speaks == "local":
        return _local_speaker(endpoint, price)
    check_extra_params(endpoint)
    if speaks == "anthropic":
        from .anthropic_adapter import PATH, AnthropicSpeaker

        line = Line(target_for(endpoint, PATH, timeout_s=timeout_s), timing)
        return AnthropicSpeaker(endpoint, line, price)
    from .openai_adapter import PATH, OpenAISpeaker

    line = Line(target_for(endpoint, PATH, timeout_s=timeout_s), timing)
    return OpenAISpeaker(endpoint, line, price)


def _local_speaker(endpoint: Endpoint, price: Price | None) -> Speaker:
    if endpoint.model in EMBEDDED or endpoint.model.lower().endswith(".gguf"):
        from .gguf import GgufSpeaker

        return GgufSpeaker(endpoint, price=price)
    from .in_process import folder_speaker

    return folder_speaker(endpoint, price)


def target_for(endpoint: Endpoint, path: str, *, timeout_s: float) -> Target:
    """Where and how the requests of an endpoint are sent."""
    address = address_of(endpoint)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        # Answers are short: unpacking costs more than it saves, and a bomb cannot be packed.
        "Accept-Encoding": "identity",
        "User-Agent": "assay",
    }
    if provider_named(endpoint.provider).speaks == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    _put(headers, credential_headers(endpoint))
    _put(headers, _checked(endpoint))
    url = address.url(path)
    # Read once for each client, like the key: a change in between does not split its requests.
    proxy = proxy_for(url)
    return Target(
        url=url,
        headers=headers,
        timeout_s=timeout_s,
        redactor=redactor_for(endpoint, headers, proxy),
        where=shown_name(endpoint),
        denied_hint=key_hint(endpoint),
        proxy=proxy,
    )


def shown_name(endpoint: Endpoint) -> str:
    """An endpoint as it is named in errors: without user, password and query."""
    name = f"{endpoint.provider}:{endpoint.model}"
    if provider_named(endpoint.provider).in_process:
        return name
    return f"{name} at {address_of(endpoint).host}"


def _put(headers: dict[str, str], more: dict[str, str]) -> None:
    """Set headers whatever the case of their names."""
    names = {name.lower(): name for name in headers}
    for name, value in more.items():
        headers[names.get(name.lower(), name)] = value


def _checked(endpoint: Endpoint) -> dict[str, str]:
    for name, value in endpoint.headers.items():
        token = name.replace("-", "").replace("_", "")
        if not token.isascii() or not token.isalnum() or not value.isprintable():
            # The value is not shown: it may be a key with a line break in it.
            raise ConfigError(
                f"the header {name!r} cannot be sent",
                where=f"{endpoint.provider}:{endpoint.model}",
                hint="a name is letters, digits and hyphens; a value is one printable line",
            )
    return endpoint.headers
