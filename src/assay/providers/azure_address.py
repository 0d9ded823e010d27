"""The address of an Azure OpenAI deployment, in the form of its API version."""

import os
import re
from urllib.parse import parse_qs, quote, urlsplit

from assay.errors import ConfigError
from assay.types import Endpoint

from .address import resolve_address
from .provider_table import find_provider

_VERSION_VARIABLES = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
_VERSION = re.compile(r"[A-Za-z0-9.-]+")
_CURRENT_API = "/openai/v1"
# Versions by date address a deployment; the current API, and its `preview`, name it in the body.
_DATED_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}")


def complete_azure_endpoint(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with the address and API version that environment variables hold.

    They become settings of the endpoint, so that a run at another resource is another run.
    """
    provider = find_provider(endpoint.provider)
    if provider.protocol != "azure":
        return endpoint
    found: dict[str, str] = {}
    base = endpoint.api_base
    if base is None and "api_base" not in (endpoint.model_extra or {}).get("withheld", ()):
        base = os.environ.get(provider.address_variable or "", "").strip() or None
        if base is not None:
            found["api_base"] = base
    if endpoint.api_version is None and base is not None and not _has_version(base):
        given = ((name, os.environ.get(name, "").strip()) for name in _VERSION_VARIABLES)
        name, version = next((pair for pair in given if pair[1]), ("", None))
        if version is not None and not _VERSION.fullmatch(version):
            raise ConfigError(
                f"{name} is not an API version", where=name, hint="write it like 2024-10-21"
            )
        if version is not None:
            found["api_version"] = version
    return endpoint.model_copy(update=found) if found else endpoint


def build_azure_path(endpoint: Endpoint, operation: str) -> str:
    """Return the path of an operation below the address of the endpoint.

    A version by date selects the path of the deployment, all else the current API, in which the
    deployment is the model of the request.
    """
    address = resolve_address(endpoint)
    version = "".join(parse_qs(address.query).get("api-version", ())[:1])
    dated = _DATED_VERSION.match(version) is not None
    where = f"{endpoint.provider}:{endpoint.model}"
    if address.path.endswith(_CURRENT_API):
        if dated:
            raise ConfigError(
                f"the API version {version!r} does not belong to an address that ends in "
                f"{_CURRENT_API}",
                where=where,
                hint=f"remove `api_version`, or {_CURRENT_API} from the address",
            )
        return operation
    if "/openai" in address.path:
        raise ConfigError(
            "`api_base` is not the address of an Azure resource",
            where=where,
            hint="write it like https://NAME.openai.azure.com; the deployment is the model, and "
            "the version is `api_version`",
        )
    if not dated:
        return f"{_CURRENT_API}{operation}"
    # Listing models concerns the resource, not a deployment.
    if operation == "/models":
        return "/openai/models"
    return f"/openai/deployments/{quote(endpoint.model, safe='')}{operation}"


def _has_version(api_base: str) -> bool:
    try:
        parts = urlsplit(api_base)
    except ValueError:
        return False  # refused when the address is resolved
    ends_in_api = parts.path.rstrip("/").endswith(_CURRENT_API)
    return ends_in_api or "api-version" in parse_qs(parts.query)
