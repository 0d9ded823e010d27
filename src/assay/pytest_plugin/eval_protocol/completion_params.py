"""`completion_params` as eval-protocol passes them to LiteLLM, read as an `Endpoint`."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.providers import find_provider, is_provider, parse_model
from assay.types import Endpoint

CompletionParams = dict[str, Any]

_PARAMS_WHERE = "completion_params"
_FIREWORKS = "https://api.fireworks.ai/inference/v1"
_FIREWORKS_MODEL = re.compile(r"(?:fireworks_ai/)?(accounts/[^/]+/(?:models|deployments)/.+)")
# The prefixes of LiteLLM's model names that assay has a provider for.
_PREFIXES = {
    "anthropic": "anthropic",
    "fireworks_ai": "fireworks_ai",
    "hosted_vllm": "vllm",
    "ollama": "ollama",
    "ollama_chat": "ollama",
    "openai": "openai",
    "openrouter": "openrouter",
}

# The environment variables from which LiteLLM reads a provider's address.
_ADDRESS_VARIABLES = {
    "anthropic": ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "fireworks_ai": ("FIREWORKS_API_BASE",),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "openrouter": ("OPENROUTER_API_BASE",),
    "vllm": ("HOSTED_VLLM_API_BASE",),
}

_UNCHANGED_PARAMS = (
    "api_key",
    "max_tokens",
    "reasoning_effort",
    "seed",
    "stop",
    "temperature",
    "top_p",
)
_RENAMED_PARAMS = {
    "extra_headers": "headers",
    "max_retries": "max_retries",
    "num_retries": "max_retries",
    "timeout": "timeout_s",
}
# These affect the transport of an answer, not its content. assay never streams, and caches only on
# request.
_IGNORED_PARAMS = frozenset({"cache", "stream", "stream_options"})
_READ_PARAMS = frozenset(
    {
        *("api_base", "base_url", "extra_body", "model"),
        *_UNCHANGED_PARAMS,
        *_RENAMED_PARAMS,
        *_IGNORED_PARAMS,
    }
)


def parse_completion_params(params: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint of `completion_params`. Raises `ConfigError` for invalid values.

    The address of a model without one comes from `EP_LLM_API_BASE` or `EP_LLM_BASE_URL`, else from
    the variable that LiteLLM reads for the provider, such as `OPENAI_BASE_URL`.
    """
    model = params.get("model")
    if not isinstance(model, str) or not model:
        raise ConfigError(
            "`completion_params` has no `model`",
            where=_PARAMS_WHERE,
            hint="name one, or use NoOpRolloutProcessor() to score the rows without a model call",
        )
    address = params.get("api_base") or params.get("base_url")
    fields: dict[str, Any] = {
        **_read_litellm_model(model, address),
        **{name: params[name] for name in _UNCHANGED_PARAMS if params.get(name) is not None},
        **{
            own: params[name]
            for name, own in _RENAMED_PARAMS.items()
            if params.get(name) is not None
        },
    }
    if fields.get("api_key"):
        fields.pop("key_env", None)
    if isinstance(fields.get("stop"), str):
        fields["stop"] = (fields["stop"],)
    body = params.get("extra_body") or {}
    if not isinstance(body, Mapping):
        raise ConfigError("`extra_body` is not a dictionary", where=_PARAMS_WHERE)
    # Everything that an endpoint has no field for is sent with each request.
    extra = {**{name: params[name] for name in params if name not in _READ_PARAMS}, **body}
    effort = extra.pop("reasoning_effort", None)
    if effort is not None:
        fields.setdefault("reasoning_effort", effort)
    try:
        return Endpoint(**fields, extra_params=extra)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{place}: {first['msg']}", where=_PARAMS_WHERE) from None


def describe_params(params: Mapping[str, Any] | None) -> CompletionParams:
    """Return the `completion_params` for the metadata of a row, without secrets."""
    given = dict(params or {})
    # Any model name will do: only the redaction of the other parameters matters here.
    written = parse_completion_params({**given, "model": given.get("model") or "none"}).to_dict()
    withheld = {name.removeprefix("extra_params.") for name in written.get("withheld", ())}
    body = given.get("extra_body")
    if isinstance(body, Mapping):
        given["extra_body"] = {key: body[key] for key in body if key not in withheld}
    for name in ("api_base", "base_url"):
        if given.get(name):
            given[name] = written.get("api_base")
    hidden = {"api_key", "extra_headers", *withheld}
    return {key: value for key, value in given.items() if key not in hidden}


def _find_address(provider: str | None) -> str | None:
    names = ("EP_LLM_API_BASE", "EP_LLM_BASE_URL", *_ADDRESS_VARIABLES.get(provider or "", ()))
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _read_litellm_model(model: str, address: str | None) -> dict[str, Any]:
    # Accepts LiteLLM's model names and assay's own model strings.
    if is_provider(model.partition(":")[0]):
        own = parse_model(model)
        given = {"provider": own.provider, "model": own.model, "key_env": own.key_env}
        if not find_provider(own.provider).in_process:
            given["api_base"] = own.api_base or address or _find_address(None)
        return given
    fireworks = _FIREWORKS_MODEL.fullmatch(model)
    prefix, slash, rest = model.partition("/")
    if fireworks:
        provider: str | None = "fireworks_ai"
    elif slash:
        provider = _PREFIXES.get(prefix)
    else:
        # LiteLLM guesses the provider of a model name without a prefix in the same way.
        openai = "openai" if re.match(r"gpt-|chatgpt-|o\d", model) else None
        provider = "anthropic" if model.startswith("claude") else openai
    name = fireworks[1] if fireworks else rest if slash and provider else model
    address = address or _find_address(provider)
    if provider == "fireworks_ai":
        base = address or _FIREWORKS
        # The Fireworks key must not be sent to a proxy or another host.
        is_theirs = (urlsplit(base).hostname or "").endswith(".fireworks.ai")
        own_key = {"key_env": "FIREWORKS_API_KEY"} if is_theirs else {}
        return {"provider": "openai-compatible", "model": name, "api_base": base, **own_key}
    # An endpoint without provider and address is refused when a client connects, not here:
    # `--assay-model` may replace it until then.
    return {"provider": provider or "openai-compatible", "model": name, "api_base": address}
