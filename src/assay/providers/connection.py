"""From an endpoint to a client. Everything about it is checked here; nothing is sent yet."""

from pathlib import Path

from assay.errors import ConfigError
from assay.types import Endpoint

from .adapter import InProcessAdapter, ProviderAdapter
from .address import resolve_address
from .cache import ResponseCache
from .client import Client, ClientDeps
from .clock import REAL_TIME, Timing
from .concurrency import AdaptiveLimiter, Limiter
from .embedded_model import EMBEDDED_MODELS
from .http import HttpEndpoint, RequestTemplate
from .keys import build_credential_headers, build_key_hint
from .prices import Price, find_price
from .provider_table import find_provider
from .proxies import find_proxy
from .reply import ClientSettings
from .reply_redaction import Redactor, build_endpoint_redactor
from .sampling_settings import check_extra_params


def connect(
    endpoint: Endpoint,
    settings: ClientSettings | None = None,
    *,
    timing: Timing = REAL_TIME,
) -> Client:
    """A client for an endpoint. Wrong settings raise `ConfigError` here, before any request."""
    settings = settings or ClientSettings()
    speaker = _build_adapter(endpoint, settings, timing)
    limiter = _build_limiter(speaker, settings, timing)
    cache = None if settings.cache is None else ResponseCache(Path(settings.cache), endpoint)
    redactor = Redactor([endpoint.api_key, endpoint.oauth_token, *endpoint.headers.values()])
    tools = ClientDeps(limiter, cache, timing, format_endpoint_name(endpoint), redactor)
    return Client(endpoint, settings, speaker, tools)


def _build_limiter(speaker: ProviderAdapter, settings: ClientSettings, timing: Timing) -> Limiter:
    if settings.concurrency is not None:
        return Limiter(settings.concurrency)
    if isinstance(speaker, InProcessAdapter):
        return Limiter(speaker.at_once)
    return AdaptiveLimiter(ceiling=settings.max_concurrency, timing=timing)


def _build_adapter(endpoint: Endpoint, settings: ClientSettings, timing: Timing) -> ProviderAdapter:
    speaks = find_provider(endpoint.provider).speaks
    price = find_price(endpoint, settings.prices)
    timeout_s = endpoint.timeout_s or settings.request_timeout_s
    if speaks == "mock":
        from .mock import MockAdapter

        return MockAdapter(endpoint, timeout_s, price, timing)
    if speaks == "local":
        return _build_local_adapter(endpoint, price)
    check_extra_params(endpoint)
    if speaks == "anthropic":
        from .anthropic_adapter import PATH, AnthropicAdapter

        line = HttpEndpoint(build_request_template(endpoint, PATH, timeout_s=timeout_s), timing)
        return AnthropicAdapter(endpoint, line, price)
    from .openai_adapter import PATH, OpenAIAdapter

    line = HttpEndpoint(build_request_template(endpoint, PATH, timeout_s=timeout_s), timing)
    return OpenAIAdapter(endpoint, line, price)


def _build_local_adapter(endpoint: Endpoint, price: Price | None) -> ProviderAdapter:
    if endpoint.model in EMBEDDED_MODELS or endpoint.model.lower().endswith(".gguf"):
        from .gguf import GgufAdapter

        return GgufAdapter(endpoint, price=price)
    from .in_process import build_folder_adapter

    return build_folder_adapter(endpoint, price)


def build_request_template(endpoint: Endpoint, path: str, *, timeout_s: float) -> RequestTemplate:
    """Where and how the requests of an endpoint are sent."""
    address = resolve_address(endpoint)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        # Answers are short: unpacking costs more than it saves, and a bomb cannot be packed.
        "Accept-Encoding": "identity",
        "User-Agent": "assay",
    }
    if find_provider(endpoint.provider).speaks == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    _set_headers(headers, build_credential_headers(endpoint))
    _set_headers(headers, _check_endpoint_headers(endpoint))
    url = address.url(path)
    # Read once for each client, like the key: a change in between does not split its requests.
    proxy = find_proxy(url)
    return RequestTemplate(
        url=url,
        headers=headers,
        timeout_s=timeout_s,
        redactor=build_endpoint_redactor(endpoint, headers, proxy),
        where=format_endpoint_name(endpoint),
        denied_hint=build_key_hint(endpoint),
        proxy=proxy,
    )


def format_endpoint_name(endpoint: Endpoint) -> str:
    """An endpoint as it is named in errors: without user, password and query."""
    name = f"{endpoint.provider}:{endpoint.model}"
    if find_provider(endpoint.provider).in_process:
        return name
    return f"{name} at {resolve_address(endpoint).host}"


def _set_headers(headers: dict[str, str], more: dict[str, str]) -> None:
    """Set headers whatever the case of their names."""
    names = {name.lower(): name for name in headers}
    for name, value in more.items():
        headers[names.get(name.lower(), name)] = value


def _check_endpoint_headers(endpoint: Endpoint) -> dict[str, str]:
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
