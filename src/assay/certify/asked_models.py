"""Model names in manifests. A manifest names a model, never its address."""

import re

from assay.errors import ConfigError
from assay.providers import is_provider, list_providers, parse_model
from assay.types import Endpoint

_PROVIDER_PATTERNS = (
    (re.compile(r"(gpt|chatgpt|o\d)\b", re.IGNORECASE), "openai"),
    (re.compile(r"claude\b", re.IGNORECASE), "anthropic"),
)


def resolve_manifest_endpoint(model: str, *, where: str, option: str) -> Endpoint:
    """Return the endpoint of a model in a manifest, `provider:model` or a plain name.

    Raises `ConfigError` for an unknown provider, and for a model with an address.
    """
    # Keys would be sent to any address that a manifest contains.
    if "@http://" in model or "@https://" in model:
        raise ConfigError(
            "the model must not have an address in a manifest",
            where=where,
            hint=f"remove the address, and pass {option} PROVIDER:MODEL@URL",
        )
    provider = model.partition(":")[0]
    if ":" in model and is_provider(provider):
        return parse_model(model)
    for pattern, known in _PROVIDER_PATTERNS:
        if pattern.match(model):
            return Endpoint(provider=known, model=model)
    raise ConfigError(
        f"the provider of the model {model!r} is unknown",
        where=where,
        hint=f"write provider:model, or pass {option} PROVIDER:MODEL[@URL]; "
        f"providers are {', '.join(list_providers())}",
    )


def strip_provider(model: str) -> str:
    """Return the model's name without its provider."""
    provider, colon, rest = model.partition(":")
    return rest if colon and is_provider(provider) else model
