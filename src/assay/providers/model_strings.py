"""Model strings: `openai:gpt-5`, `local:smollm2-135m`, `vllm:my-model@http://host:8000/v1`."""

import re

from assay.errors import ConfigError
from assay.types import Endpoint

from .address import resolve_address
from .azure_address import complete_azure_endpoint
from .provider_table import find_provider, list_providers

_MODEL_STRING_HINT = "write provider:model or provider:model@http://host/v1"
# The suffix that names the environment variable of the key.
_KEY_ENV = re.compile(r"#key_env=([A-Za-z_][A-Za-z0-9_]*)$")
_SETTING_SUFFIX = re.compile(r"#[A-Za-z_-]+=")


EndpointLike = Endpoint | str
"""An endpoint, or a model string that `parse_model` reads."""


def to_endpoint(given: EndpointLike, *, where: str, name: str = "endpoint") -> Endpoint:
    """Return the endpoint that the setting `name` holds. Raises `ConfigError` for another type."""
    if isinstance(given, str):
        return parse_model(given)
    if not isinstance(given, Endpoint):
        # The value is not shown: it may contain a key.
        raise ConfigError(
            f"`{name}` cannot be of type `{type(given).__name__}`",
            where=where,
            hint="pass an Endpoint, or a model string such as 'openai:gpt-5'",
        )
    return complete_azure_endpoint(given)


def parse_model(text: str) -> Endpoint:
    """Parse a model string to an endpoint. Raises `ConfigError` if it is invalid.

    It may end with `#key_env=NAME`, the environment variable that holds the key.
    """
    text = text.strip()
    key_env = _KEY_ENV.search(text)
    provider, colon, rest = _KEY_ENV.sub("", text).partition(":")
    if not colon or not provider or not rest:
        # The string is not shown: without a provider, the rest may be an address with a key.
        raise ConfigError(
            "a model string has the form `provider:model`; providers are "
            + ", ".join(list_providers()),
            where="model string",
            hint=_MODEL_STRING_HINT,
        )
    known = find_provider(provider)
    model, api_base = rest, None
    # Only `@http` separates them: a model name may contain an `@` itself.
    if mark := next((each for each in ("@http://", "@https://") if each in rest), None):
        model, _, path = rest.partition(mark)
        api_base = f"{mark[1:]}{path}"
    after_at = model.partition("@")[2]
    if not known.in_process and (":/" in after_at or "@" in after_at):
        # The string is not shown: it may contain a password.
        raise ConfigError(
            "the part after @ is not an address", where="model string", hint=_MODEL_STRING_HINT
        )
    if not known.in_process and ("#" in (api_base or "") or _SETTING_SUFFIX.search(model)):
        # A fragment is not sent, so the request would lack its key. It is not shown, since it may
        # be the key itself.
        raise ConfigError(
            "the part after # is not a setting",
            where="model string",
            hint="the only setting is #key_env=NAME, an environment variable that holds the key",
        )
    if not model or model.isspace():
        raise ConfigError(
            f"the model name after {provider + ':'!r} is missing",
            where="model string",
            hint=_MODEL_STRING_HINT,
        )
    endpoint = complete_azure_endpoint(
        Endpoint(provider=provider, model=model, api_base=api_base, key_env=key_env and key_env[1])
    )
    if known.needs_address or (api_base is not None and not known.in_process):
        resolve_address(endpoint)
    elif api_base is not None:
        raise ConfigError(
            f"a {provider} model has no address",
            where="model string",
            hint="remove the part after @",
        )
    if key_env and known.in_process:
        raise ConfigError(
            f"a {provider} model needs no key", where="model string", hint="remove #key_env"
        )
    return endpoint
