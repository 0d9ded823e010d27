"""Digests that others can make again: of definitions, of code, of files."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from assay.providers import shown_name
from assay.types import AgentDefinition, Endpoint, Manifest, canonical

from .certified import CertifiedEndpoint


def named_definitions(agent: AgentDefinition, manifest: Manifest) -> dict[str, str]:
    """The digests of the definitions that an agent names by id, and of those that these name."""
    known: dict[str, Any] = {}
    for key, each in manifest.definitions.items():
        for name in {key, getattr(each, "id", key)}:
            known.setdefault(name, each)
    found: dict[str, str] = {}
    left = [agent.model_dump(mode="json", exclude={"evaluation"})]
    while left:
        for text in _texts(left.pop()):
            named = known.get(text)
            if named is not None and named is not agent and text not in found:
                plain = named.model_dump(mode="json", exclude_defaults=True)
                found[text] = sha256_of(canonical(plain))
                left.append(plain)
    return dict(sorted(found.items()))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def definition_sha256(agent: AgentDefinition) -> str:
    """The digest of an agent's definition: the same however its file is laid out.

    Fields that are at their defaults do not count, whether or not they were written.
    """
    return sha256_of(canonical(agent.model_dump(mode="json", exclude_defaults=True)))


def code_of(function: object) -> CodeType | None:
    """The code that runs when an object is called; None where that is not Python's."""
    for each in (getattr(function, "__func__", function), vars(type(function)).get("__call__")):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def code_sha256(function: Callable[..., object]) -> str | None:
    """The digest of the file that holds a function; None where there is none to be read.

    The whole file: a metric is also the helpers beside it. The file is that of the code which is
    called: a function that says of itself that it wraps another is not digested as the other.
    """
    code = code_of(function)
    try:
        return None if code is None else file_sha256(Path(code.co_filename))
    except (OSError, TypeError, ValueError):
        return None


def certified_endpoint(endpoint: Endpoint | None) -> CertifiedEndpoint | None:
    """A model as a certificate names it, without secrets."""
    if endpoint is None:
        return None
    return CertifiedEndpoint(
        provider=endpoint.provider,
        model=endpoint.model,
        host=shown_name(endpoint).partition(" at ")[2] or None,
        settings_sha256=stable_sha256(endpoint.to_dict()),
    )


def stable_sha256(value: object) -> str:
    """The digest of plain values, whatever numbers are in them."""
    return sha256_of(json.dumps(value, sort_keys=True, default=str).encode())


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
