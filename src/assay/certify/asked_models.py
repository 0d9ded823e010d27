"""Models as manifests name them. A manifest says which model; never where it is."""

import re

from assay.errors import ConfigError
from assay.providers import PROVIDERS, parse_model
from assay.types import Endpoint

_PROVIDER_PATTERNS = (
    (re.compile(r"(gpt|chatgpt|o\d)\b", re.IGNORECASE), "openai"),
    (re.compile(r"claude\b", re.IGNORECASE), "anthropic"),
)


def resolve_manifest_endpoint(model: str, *, where: str, option: str) -> Endpoint:
    """The endpoint of a model that a manifest names, as `provider:model` or by its plain name.

    Raises `ConfigError` for one whose provider is not known, and for one with an address: keys
    would go wherever a manifest says.
    """
    if "@http://" in model or "@https://" in model:
        raise ConfigError(
            "the model has an address, which does not belong into a manifest",
            where=where,
            hint=f"leave the address out, and give {option} PROVIDER:MODEL@URL",
        )
    provider = model.partition(":")[0]
    if provider in PROVIDERS and ":" in model:
        return parse_model(model)
    for pattern, known in _PROVIDER_PATTERNS:
        if pattern.match(model):
            return Endpoint(provider=known, model=model)
    raise ConfigError(
        f"it is not known who serves the model {model!r}",
        where=where,
        hint=f"write provider:model, or give {option} PROVIDER:MODEL[@URL]; "
        f"providers are {', '.join(PROVIDERS)}",
    )


def strip_provider(model: str) -> str:
    """The model's own name, without its provider: what two spellings of one model share."""
    provider, colon, rest = model.partition(":")
    return rest if colon and provider in PROVIDERS else model
