"""Build a client for an endpoint, or check the endpoint by listing its models.

All settings are checked here, before any request.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import AssayError, ConfigError
from assay.types import Endpoint

from .adapter import InProcessAdapter, ProviderAdapter, check_extra_params, check_headers
from .address import resolve_address
from .attempt_errors import AttemptError, ErrorKind
from .azure_address import build_azure_path
from .client import Client, ClientDeps
from .clock import REAL_TIME, Timing
from .concurrency import INITIAL_LIMIT, LIMIT_SHARE, AdaptiveLimiter, Limiter
from .keys import build_credential_headers, build_key_hint
from .model_strings import EndpointLike, to_endpoint
from .prices import find_price
from .provider_table import find_provider
from .proxies import find_proxy
from .refusal_relay import REFUSALS
from .reply import ClientSettings
from .reply_redaction import Redactor, build_endpoint_redactor

if TYPE_CHECKING:
    from .http import RequestTemplate


def connect(
    endpoint: EndpointLike,
    settings: ClientSettings | None = None,
    *,
    timing: Timing = REAL_TIME,
) -> Client:
    """Return a client for an endpoint or a model string. Invalid settings raise `ConfigError`."""
    endpoint = to_endpoint(endpoint, where="connect()")
    settings = settings or ClientSettings()
    adapter = _build_adapter(endpoint, settings, timing)
    limiter: Limiter
    if settings.concurrency is not None:
        limiter = Limiter(LIMIT_SHARE.take(settings.concurrency))
    elif isinstance(adapter, InProcessAdapter):
        limiter = Limiter(adapter.at_once)
    else:
        ceiling, initial = map(LIMIT_SHARE.take, (settings.max_concurrency, INITIAL_LIMIT))
        limiter = AdaptiveLimiter(ceiling=ceiling, timing=timing, initial=initial)
    cache = None
    if settings.cache is not None:
        from .cache import ResponseCache

        cache = ResponseCache(Path(settings.cache), endpoint)
    redactor = Redactor([endpoint.api_key, endpoint.oauth_token, *endpoint.headers.values()])
    deps = ClientDeps(limiter, cache, timing, format_endpoint_name(endpoint), redactor)
    REFUSALS.add(deps.where, limiter)
    return Client(endpoint, settings, adapter, deps)


def _build_adapter(endpoint: Endpoint, settings: ClientSettings, timing: Timing) -> ProviderAdapter:
    protocol = find_provider(endpoint.provider).protocol
    if endpoint.api_version is not None and protocol != "azure":
        raise ConfigError(
            "`api_version` is a setting of the provider 'azure'",
            where=f"{endpoint.provider}:{endpoint.model}",
            hint="remove it",
        )
    price = find_price(endpoint, settings.prices)
    timeout_s = endpoint.timeout_s or settings.request_timeout_s
    if protocol == "plugin":
        from .plugin_adapter import PluginAdapter

        return PluginAdapter(endpoint, settings, price)
    if protocol == "mock":
        from .mock import MockAdapter

        return MockAdapter(endpoint, timeout_s, price, timing)
    if protocol == "local":
        from .model_hub import EMBEDDED_MODELS

        if endpoint.model in EMBEDDED_MODELS or endpoint.model.lower().endswith(".gguf"):
            from .gguf import GgufAdapter

            return GgufAdapter(endpoint, price=price)
        from .in_process import build_folder_adapter

        return build_folder_adapter(endpoint, price)
    check_extra_params(endpoint)
    if protocol == "bedrock":
        from .bedrock_adapter import BedrockAdapter

        return BedrockAdapter(endpoint, settings, price, timing)
    # Not above: evaluations without a remote model start faster without it.
    from .http import HttpEndpoint

    if protocol == "gemini":
        from .gemini_adapter import GeminiAdapter, build_gemini_path

        path = build_gemini_path(endpoint.model)
        template = build_request_template(endpoint, path, timeout_s=timeout_s)
        return GeminiAdapter(endpoint, HttpEndpoint(template, timing), price)
    if protocol == "anthropic":
        from .anthropic_adapter import PATH, AnthropicAdapter

        http = HttpEndpoint(build_request_template(endpoint, PATH, timeout_s=timeout_s), timing)
        return AnthropicAdapter(endpoint, http, price)
    if protocol == "openai-responses":
        from .openai_responses_adapter import RESPONSES_PATH, OpenAIResponsesAdapter

        template = build_request_template(endpoint, RESPONSES_PATH, timeout_s=timeout_s)
        return OpenAIResponsesAdapter(endpoint, HttpEndpoint(template, timing), price)
    from .openai_adapter import PATH, OpenAIAdapter

    path = build_azure_path(endpoint, PATH) if protocol == "azure" else PATH
    http = HttpEndpoint(build_request_template(endpoint, path, timeout_s=timeout_s), timing)
    return OpenAIAdapter(endpoint, http, price)


# Their addresses do not end in /v1, as the usual hint says.
_MISSING_MODEL_HINTS: dict[str, str] = {
    "azure": "check the name of the deployment, and that `api_base` is the address of its resource",
    "gemini": "check the model name; `assay doctor --model gemini:NAME` lists those on offer",
}


def build_request_template(endpoint: Endpoint, path: str, *, timeout_s: float) -> "RequestTemplate":
    """Build the parts that the requests of an endpoint share."""
    from .http import RequestTemplate

    address = resolve_address(endpoint)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        # Avoids decompression, which costs more than it saves here, and zip bombs.
        "Accept-Encoding": "identity",
        "User-Agent": "assay",
    }
    if find_provider(endpoint.provider).protocol == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    credentials = build_credential_headers(endpoint)
    check_headers(endpoint)
    for more in (credentials, endpoint.headers):
        # Header names are case-insensitive: a second spelling would send the header twice.
        names = {name.lower(): name for name in headers}
        headers |= {names.get(name.lower(), name): value for name, value in more.items()}
    url = address.url(path)
    # Read once per client, like the key, so that all of its requests take the same route.
    proxy = find_proxy(url)
    return RequestTemplate(
        url=url,
        headers=headers,
        timeout_s=timeout_s,
        redactor=build_endpoint_redactor(endpoint, headers, proxy),
        where=format_endpoint_name(endpoint),
        denied_hint=build_key_hint(endpoint),
        missing_hint=_MISSING_MODEL_HINTS.get(find_provider(endpoint.provider).protocol),
        proxy=proxy,
    )


def format_endpoint_name(endpoint: Endpoint) -> str:
    """Return the name of an endpoint for errors: without user, password and query."""
    name = f"{endpoint.provider}:{endpoint.model}"
    if not find_provider(endpoint.provider).needs_address:
        return name
    return f"{name} at {resolve_address(endpoint).host}"


CheckVerdict = Literal["answers", "refused", "unauthorised", "unreachable", "misconfigured"]

_TIMEOUT_S = 10.0
_MAX_MODELS = 1000


@dataclass(frozen=True)
class EndpointCheck:
    """The result of listing the models of an endpoint."""

    verdict: CheckVerdict
    """`refused`: a server answers, but not as a model server does."""

    detail: str
    """A description for humans."""

    latency_s: float | None = None
    models: tuple[str, ...] | None = None
    """The offered models. None: unknown."""

    has_model: bool | None = None
    """Whether the model of the endpoint is among them."""

    hint: str | None = None
    proxy: str | None = None
    """Host and port of the proxy; None: a direct connection."""


async def check_endpoint(
    endpoint: EndpointLike, *, timeout_s: float = _TIMEOUT_S, timing: Timing = REAL_TIME
) -> EndpointCheck:
    """List the models of an endpoint. Errors of the endpoint are returned, not raised."""
    from .http import HttpEndpoint

    try:
        endpoint = to_endpoint(endpoint, where="check_endpoint()")
        await connect(endpoint).close()
        protocol = find_provider(endpoint.provider).protocol
        if protocol == "mock":
            return EndpointCheck("answers", "a mock, in this process", models=(endpoint.model,))
        if protocol == "local":
            return EndpointCheck(
                "answers", "a model in this process, not loaded yet", models=(endpoint.model,)
            )
        if protocol == "plugin":
            return EndpointCheck("answers", "a client of a plug-in, which was not called")
        if protocol == "bedrock":
            return EndpointCheck(
                "answers", "the credentials of AWS were found; Bedrock was not called"
            )
        path = "/v1/models" if protocol == "anthropic" else "/models"
        if protocol == "azure":
            path = build_azure_path(endpoint, path)
        template = build_request_template(endpoint, path, timeout_s=timeout_s)
        if protocol == "gemini":
            # A page has 50 models otherwise, so that the one of the endpoint may be missing.
            mark = "&" if "?" in template.url else "?"
            template = replace(template, url=f"{template.url}{mark}pageSize={_MAX_MODELS}")
        http = HttpEndpoint(template, timing)
    except AssayError as error:
        return EndpointCheck("misconfigured", error.message, hint=error.hint)
    started = timing.clock()
    try:
        answer = await http.get()
        if protocol == "gemini":
            answer = _to_openai_list(answer)
        found = _read_model_list(answer, endpoint.model, timing.clock() - started)
        if protocol == "azure" and found.has_model is False:
            # The list has the models of the resource; its deployments have other names.
            found = replace(found, has_model=None, hint=None)
    except AttemptError as fault:
        spent_s = timing.clock() - started
        if fault.kind is ErrorKind.DENIED:
            found = EndpointCheck("unauthorised", fault.message, spent_s, hint=fault.hint)
        elif fault.kind in (ErrorKind.UNREACHABLE, ErrorKind.TIMEOUT):
            hint = "check that the server is running and that `api_base` is its address"
            found = EndpointCheck("unreachable", fault.message, hint=hint)
        else:
            found = EndpointCheck("refused", fault.message, spent_s, hint=fault.hint)
    finally:
        await http.close()
    return replace(found, proxy=None if template.proxy is None else template.proxy.host)


def _to_openai_list(answer: Any) -> Any:
    # {"models": [{"name": "models/NAME", ...}], "nextPageToken": ...}
    listed = answer.get("models") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    names = [str(entry.get("name")) for entry in listed if isinstance(entry, dict)]
    entries = [{"id": name.removeprefix("models/")} for name in names]
    return {"data": entries, "has_more": answer.get("nextPageToken")}


def _read_model_list(answer: Any, model: str, latency_s: float) -> EndpointCheck:
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        detail = "the answer is JSON, but not a list of models"
        return EndpointCheck("refused", detail, latency_s, hint="check that `api_base` ends in /v1")
    names = [entry.get("id") for entry in listed[:_MAX_MODELS] if isinstance(entry, dict)]
    models = tuple(name for name in names if isinstance(name, str))
    # A truncated list does not prove that a model is missing.
    cut = len(listed) > _MAX_MODELS or bool(answer.get("has_more"))
    has_model = True if model in models else None if cut else False
    detail = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    detail += ", the list is truncated" if cut else ""
    hint = f"the server does not offer the model {model!r}" if has_model is False else None
    return EndpointCheck("answers", detail, latency_s, models, has_model, hint)
