"""Detection of the protocol of an environment server."""

from typing import Any
from urllib.parse import urlsplit

from assay.errors import ConfigError, EnvironmentFault

from .http_client import TOKEN_HINT, ConnectionFailed, EnvironmentClient, ServerKind
from .json_rpc import JsonRpc, RpcError, TokenRejected
from .mcp_session import MODERN_VERSION, list_mcp_urls
from .openenv import build_http_url
from .retry_when_busy import ServerBusy

_NATIVE_PREFIX = "assay-env"


async def detect_server_kind(client: EnvironmentClient) -> ServerKind:
    """Detect the protocol of a server by its URL, or else by its answers.

    Raises `EnvironmentFault` if the server does not answer, and `ConfigError` with all attempts if
    it supports none of the protocols.
    """
    parts = urlsplit(client.url)
    if parts.scheme in ("ws", "wss"):
        return "openenv"
    tried: list[str] = []
    # Servers of other kinds may offer /mcp too: a URL that names it is explicit.
    if parts.path.endswith("/mcp"):
        if await _supports_json_rpc(client, client.url, tried):
            return "mcp"
    elif (found := await _detect_by_routes(client, tried)) is not None:
        return found
    raise ConfigError(
        f"the server supports none of the known protocols ({'; '.join(tried)})",
        where=client.where,
        hint="correct the address, or pass the kind of the server: own, mcp or openenv",
    )


async def _detect_by_routes(client: EnvironmentClient, tried: list[str]) -> ServerKind | None:
    health = await _fetch_json(client, build_http_url(client.url, "health"), tried)
    if isinstance(health, dict) and str(health.get("protocol", "")).startswith(_NATIVE_PREFIX):
        return "own"
    schema = await _fetch_json(client, build_http_url(client.url, "schema"), tried)
    if health is not None and isinstance(schema, dict) and isinstance(schema.get("action"), dict):
        return "openenv"
    for url in list_mcp_urls(client):
        if await _supports_json_rpc(client, url, tried):
            return "mcp"
    return None


async def _fetch_json(client: EnvironmentClient, url: str, tried: list[str]) -> Any:
    """Return the JSON at a URL, or None."""
    name = f"GET {urlsplit(url).path}"
    try:
        answer = await client.ask("GET", url)
        if answer.status == 200:
            value = answer.json()
            tried.append(f"{name}: unrecognised JSON")
            return value
        if answer.status in (401, 403):
            raise TokenRejected(
                f"{name}: HTTP {answer.status}", where=client.where, hint=TOKEN_HINT
            )
        tried.append(f"{name}: HTTP {answer.status}")
    except (TokenRejected, ConnectionFailed):
        # Other routes of the same server would fail in the same way.
        raise
    except EnvironmentFault as fault:
        tried.append(f"{name}: {fault.message}")
    return None


async def _supports_json_rpc(client: EnvironmentClient, url: str, tried: list[str]) -> bool:
    """Return whether a URL answers JSON-RPC, if only with an error as legacy servers do."""
    headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}
    name = f"POST {urlsplit(url).path or '/'}"
    try:
        await JsonRpc(client, url).call("server/discover", {"_meta": {}}, headers)
    except ServerBusy:
        # Only an endpoint of the right kind has sessions to run out of.
        return True
    except RpcError as refusal:
        if refusal.code is not None:
            return True
        tried.append(f"{name}: {refusal.message}")
        return False
    except (TokenRejected, ConnectionFailed):
        raise
    except EnvironmentFault as fault:
        tried.append(f"{name}: {fault.message}")
        return False
    return True
