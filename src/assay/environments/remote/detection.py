"""Which protocol an environment server speaks, found out by asking it."""

from typing import Any
from urllib.parse import urlsplit

from assay.errors import ConfigError, EnvironmentFault

from .http_client import TOKEN_HINT, ConnectionFailed, EnvironmentClient, ServerKind
from .json_rpc import JsonRpc, RpcError, TokenRejected
from .mcp_session import MODERN_VERSION, list_mcp_urls
from .openenv import build_http_url
from .retry_when_busy import ServerBusy

_NATIVE_PREFIX = "assay-env"


async def detect_server_kind(link: EnvironmentClient) -> ServerKind:
    """The protocol of the server: by its address where that says it, else by what it answers.

    Raises `EnvironmentFault` if nothing answers, and `ConfigError` with everything that was tried
    if the server speaks none of the protocols.
    """
    parts = urlsplit(link.url)
    if parts.scheme in ("ws", "wss"):
        return "openenv"
    tried: list[str] = []
    # A server of any kind may offer /mcp besides: whoever names it means it.
    if parts.path.endswith("/mcp"):
        if await _supports_json_rpc(link, link.url, tried):
            return "mcp"
    elif (found := await _detect_by_routes(link, tried)) is not None:
        return found
    raise ConfigError(
        f"the server speaks none of the known protocols ({'; '.join(tried)})",
        where=link.where,
        hint="correct the address, or name its kind: own, mcp or openenv",
    )


async def _detect_by_routes(link: EnvironmentClient, tried: list[str]) -> ServerKind | None:
    health = await _fetch_json(link, build_http_url(link.url, "health"), tried)
    if isinstance(health, dict) and str(health.get("protocol", "")).startswith(_NATIVE_PREFIX):
        return "own"
    schema = await _fetch_json(link, build_http_url(link.url, "schema"), tried)
    if health is not None and isinstance(schema, dict) and isinstance(schema.get("action"), dict):
        return "openenv"
    for url in list_mcp_urls(link):
        if await _supports_json_rpc(link, url, tried):
            return "mcp"
    return None


async def _fetch_json(link: EnvironmentClient, url: str, tried: list[str]) -> Any:
    """The JSON at an address; None if there is none."""
    name = f"GET {urlsplit(url).path}"
    try:
        answer = await link.ask("GET", url)
        if answer.status == 200:
            value = answer.json()
            tried.append(f"{name}: JSON of another kind")
            return value
        if answer.status in (401, 403):
            raise TokenRejected(f"{name}: HTTP {answer.status}", where=link.where, hint=TOKEN_HINT)
        tried.append(f"{name}: HTTP {answer.status}")
    except (TokenRejected, ConnectionFailed):
        raise
    except EnvironmentFault as fault:
        tried.append(f"{name}: {fault.message}")
    return None


async def _supports_json_rpc(link: EnvironmentClient, url: str, tried: list[str]) -> bool:
    """Whether it answers JSON-RPC, be it with an error, as servers of the older era do."""
    headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}
    name = f"POST {urlsplit(url).path or '/'}"
    try:
        await JsonRpc(link, url).call("server/discover", {"_meta": {}}, headers)
    except ServerBusy:
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
