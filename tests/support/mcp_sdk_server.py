"""A plain MCP server made with the `mcp` package, which speaks both eras. No control plane."""

import argparse
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

server = MCPServer("plain", log_level="CRITICAL")


@server.tool()
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


@server.tool()
def greet(whom: str, context: Context) -> str:
    """Greet somebody, and tell under which name the caller comes."""
    headers = context.headers or {}
    session = "with" if headers.get("mcp-session-id") else "without"
    return f"Hello {whom}, {session} a session, as {headers.get('x-env-session')}"


@server.tool()
async def narrate(context: Context) -> str:
    """Say something on the way, so that the answer comes as events."""
    await context.report_progress(1, 2)
    await context.info("half way")
    return "done"


@server.tool(name="größe")
def size(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """A tool whose name and argument do not fit into a header as they are."""
    return f"size of {region}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it broke")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)
    application = server.streamable_http_app(json_response=arguments.json)
    config = uvicorn.Config(application, log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
