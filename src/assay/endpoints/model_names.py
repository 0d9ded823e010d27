"""Models as one word: `openai:gpt-5`, `local:smollm2-135m`, `vllm:my-model@http://host:8000/v1`."""

from assay.errors import ConfigError
from assay.models import Endpoint

from .address import address_of
from .providers import PROVIDERS, provider_named

_HINT = "write provider:model or provider:model@http://host/v1"


def parse_model(text: str) -> Endpoint:
    """The endpoint that a model string names. Raises `ConfigError` for any other string."""
    provider, colon, rest = text.strip().partition(":")
    if not colon or not provider or not rest:
        # Not shown as it is: where a provider is missing, the rest may be an address with a key.
        raise ConfigError(
            "a model is written `provider:model`; providers are " + ", ".join(PROVIDERS),
            where="model string",
            hint=_HINT,
        )
    provider_named(provider)
    model, api_base = _parted(rest)
    if not provider_named(provider).in_process and _holds_an_address(model):
        # Not shown: there may be a password in it.
        raise ConfigError("what is after @ is not an address", where="model string", hint=_HINT)
    if not model or model.isspace():
        raise ConfigError(f"no model after {provider + ':'!r}", where="model string", hint=_HINT)
    endpoint = Endpoint(provider=provider, model=model, api_base=api_base)
    if not provider_named(provider).in_process:
        address_of(endpoint)
    elif api_base is not None:
        raise ConfigError(
            f"a {provider} model has no address",
            where="model string",
            hint="leave out what is after @",
        )
    return endpoint


def _holds_an_address(model: str) -> bool:
    """Whether a name has something behind an `@` that was meant for an address."""
    rest = model.partition("@")[2]
    return ":/" in rest or "@" in rest


def _parted(text: str) -> tuple[str, str | None]:
    """Model and address. Only `@http` parts them: a model's name may hold an `@` itself."""
    for mark in ("@http://", "@https://"):
        model, found, rest = text.partition(mark)
        if found:
            return model, found.removeprefix("@") + rest
    return text, None
