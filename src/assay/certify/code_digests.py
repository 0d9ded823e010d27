"""Digests of definitions and endpoints in certificates."""

from collections.abc import Iterator, Mapping
from typing import Any

import rfc8785

from assay.providers import format_endpoint_name
from assay.types import AgentDefinition, Endpoint, Manifest, compute_sha256, compute_stable_sha256

from .certified import CertifiedEndpoint


def digest_named_definitions(agent: AgentDefinition, manifest: Manifest) -> dict[str, str]:
    """Digest the definitions that an agent refers to by id, directly or indirectly."""
    known: dict[str, Any] = {}
    for key, each in manifest.definitions.items():
        for name in {key, getattr(each, "id", key)}:
            known.setdefault(name, each)
    found: dict[str, str] = {}
    left = [agent.model_dump(mode="json", exclude={"evaluation"})]
    while left:
        for text in walk_texts(left.pop()):
            named = known.get(text)
            if named is not None and named is not agent and text not in found:
                plain = named.model_dump(mode="json", exclude_defaults=True)
                found[text] = compute_sha256(rfc8785.dumps(plain))
                left.append(plain)
    return dict(sorted(found.items()))


def walk_texts(value: object) -> Iterator[str]:
    """Yield all texts in a nested value, in the order of sorted keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from walk_texts(value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from walk_texts(each)


def digest_definition(agent: AgentDefinition) -> str:
    """Digest an agent's definition, independent of the layout of its file."""
    # Without defaults: writing a default explicitly must not invalidate a certificate.
    return compute_sha256(rfc8785.dumps(agent.model_dump(mode="json", exclude_defaults=True)))


def build_certified_endpoint(endpoint: Endpoint | None) -> CertifiedEndpoint | None:
    """Describe an endpoint for a certificate, without secrets."""
    if endpoint is None:
        return None
    return CertifiedEndpoint(
        provider=endpoint.provider,
        model=endpoint.model,
        host=format_endpoint_name(endpoint).partition(" at ")[2] or None,
        settings_sha256=compute_stable_sha256(endpoint.to_dict()),
    )
