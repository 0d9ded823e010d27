"""`RemoteEnvironments`: checked when made, environments only inside; which protocol is detected."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as LocalServer

import control_plane_server
import openenv_server
from assay.environments import (
    CalculatorEnvironment,
    Environment,
    EnvironmentServer,
    RemoteEnvironments,
)
from assay.environments.remote.connect import detect_server_kind
from assay.environments.remote.http_client import (
    ConnectionFailed,
    EnvironmentClient,
    normalize_server_url,
)
from assay.environments.remote.json_rpc import TokenRejected
from assay.environments.remote.mcp import McpEnvironment
from assay.environments.remote.native import NativeEnvironment
from assay.environments.remote.openenv import OpenEnvEnvironment
from assay.errors import ConfigError, EnvironmentFault
from served_environments import Faulty
from started import Started

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("token", ["", "two\nlines", "schlüssel"])
def test_a_token_that_fits_no_header_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="`token` is empty or contains") as refused:
        RemoteEnvironments(NOBODY, token=token)

    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "made"),
    [("own", NativeEnvironment), ("mcp", McpEnvironment), ("openenv", OpenEnvEnvironment)],
)
def test_a_given_kind_is_not_looked_for(kind: Any, made: type) -> None:
    async def test() -> None:
        async with RemoteEnvironments(NOBODY, kind=kind) as environments:
            assert environments.kind == kind
            first, second = environments.make(), environments.make({"task": 1})

        assert isinstance(first, made)
        assert isinstance(first, Environment)
        assert first is not second

    asyncio.run(test())


def test_the_kind_of_our_own_server_is_found_out() -> None:
    async def test() -> None:
        async with EnvironmentServer(Faulty) as server:
            environments = RemoteEnvironments(server.url)
            assert environments.kind is None
            async with environments:
                assert environments.kind == "own"

    asyncio.run(test())


def test_the_same_server_speaks_mcp_where_its_tools_are_known() -> None:
    async def test() -> None:
        tools = tuple(CalculatorEnvironment().tools)
        async with (
            EnvironmentServer(lambda task: CalculatorEnvironment(), tools=tools) as server,
            RemoteEnvironments(f"{server.url}/mcp") as environments,
        ):
            assert environments.kind == "mcp"
            environment = environments.make()
            await environment.open(seed=0)
            assert [tool.name for tool in environment.tools] == ["calculate"]
            assert len(server.sessions) == 1
            await environment.close()

    asyncio.run(test())


def test_a_server_that_does_not_answer_is_reported_on_entering() -> None:
    async def test() -> None:
        async with RemoteEnvironments(NOBODY, timeout_s=2):
            pass

    with pytest.raises((ConfigError, EnvironmentFault)):
        asyncio.run(test())


def test_environments_are_made_inside_only() -> None:
    environments = RemoteEnvironments(NOBODY, kind="own")

    with pytest.raises(ConfigError, match="outside of `async with"):
        environments.make()


@pytest.mark.parametrize(
    "options", [{"kind": "gym"}, {"timeout_s": 0}, {"timeout_s": -1}, {"queue_s": 0}]
)
def test_wrong_options_are_refused_before_anything_is_sent(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RemoteEnvironments(NOBODY, **options)


def test_a_wrong_address_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError):
        RemoteEnvironments("file:///etc/passwd")


@pytest.fixture(scope="module")
def corridor() -> Iterator[str]:
    with Started(Path(control_plane_server.__file__)) as started:
        yield started.url


@pytest.fixture(scope="module")
def openenv() -> Iterator[str]:
    with Started(Path(openenv_server.__file__)) as started:
        yield started.url


async def found(url: str) -> str:
    async with aiohttp.ClientSession() as http:
        return await detect_server_kind(
            EnvironmentClient(normalize_server_url(url), http, timeout_s=60.0)
        )


@pytest.mark.parametrize("path", ["", "/", "/mcp", "/mcp/"])
def test_an_mcp_server_is_known_by_its_json_rpc(corridor: str, path: str) -> None:
    assert asyncio.run(found(corridor + path)) == "mcp"


def test_an_openenv_server_is_known_by_its_routes_or_its_scheme(openenv: str) -> None:
    assert asyncio.run(found(openenv)) == "openenv"
    assert asyncio.run(found(f"{openenv}/ws")) == "openenv"
    assert asyncio.run(found("ws://127.0.0.1:1/ws")) == "openenv"
    assert asyncio.run(found("wss://127.0.0.1:1")) == "openenv"


def test_a_server_of_ours_is_known_by_its_health_and_as_mcp_by_its_path() -> None:
    async def play() -> tuple[str, str]:
        tools = CalculatorEnvironment().tools
        async with EnvironmentServer(lambda task: CalculatorEnvironment(), tools=tools) as server:
            return await found(server.url), await found(f"{server.url}/mcp")

    assert asyncio.run(play()) == ("own", "mcp")


def test_nothing_that_answers_is_said_as_such() -> None:
    with pytest.raises(ConnectionFailed, match="the connection failed"):
        asyncio.run(found("http://127.0.0.1:1"))
    with pytest.raises(ConnectionFailed, match="the connection failed"):
        asyncio.run(found("http://127.0.0.1:1/mcp"))


async def found_at(answers: dict[str, web.Response], path: str = "") -> str:
    """What is found at a server that gives these answers, and 404 for all else."""

    async def handle(request: web.Request) -> web.Response:
        answer = answers.get(request.path)
        if answer is None:
            return web.Response(status=404, text="Not Found")
        return web.Response(
            body=answer.body, status=answer.status, content_type=answer.content_type
        )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    async with LocalServer(application) as server:
        return await found(str(server.make_url("/")).rstrip("/") + path)


def told(value: Any, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value), status=status, content_type="application/json")


def test_a_server_that_speaks_nothing_known_is_told_with_all_that_was_tried() -> None:
    answers = {"/health": told({"status": "ok"}), "/schema": web.Response(text="<html>")}

    with pytest.raises(ConfigError) as refused:
        asyncio.run(found_at(answers))

    message = str(refused.value)
    assert "GET /health: unrecognised JSON" in message
    assert "GET /schema: the answer (HTTP 200) is not JSON" in message
    assert "POST /mcp: HTTP 404: Not Found" in message
    assert "POST /: HTTP 404: Not Found" in message
    assert "own, mcp or openenv" in message


def test_an_address_of_mcp_that_does_not_speak_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="POST /a/mcp: HTTP 404"):
        asyncio.run(found_at({}, "/a/mcp"))


def test_a_schema_without_health_is_not_enough() -> None:
    answers = {"/schema": told({"action": {}})}

    with pytest.raises(ConfigError, match="GET /health: HTTP 404"):
        asyncio.run(found_at(answers))


def test_a_schema_of_something_else_is_not_enough() -> None:
    answers = {"/health": told({}), "/schema": told({"tables": {}})}

    with pytest.raises(ConfigError):
        asyncio.run(found_at(answers))


def test_a_server_that_only_refuses_json_rpc_still_speaks_it() -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}

    assert asyncio.run(found_at({"/mcp": told(error, 400)})) == "mcp"


def test_a_server_that_answers_json_rpc_speaks_it() -> None:
    result = {"jsonrpc": "2.0", "id": 1, "result": {}}

    assert asyncio.run(found_at({"/": told(result)})) == "mcp"


@pytest.mark.parametrize("path", ["", "/mcp"])
def test_a_server_that_wants_a_token_says_so(path: str) -> None:
    answers = {"/health": told({}, 401), "/mcp": told({}, 403)}

    with pytest.raises(TokenRejected, match="`token`"):
        asyncio.run(found_at(answers, path))


def test_a_broken_server_is_told_with_what_was_tried() -> None:
    down = web.Response(status=500, text="down")

    with pytest.raises(ConfigError, match="POST /mcp: HTTP 500: down"):
        asyncio.run(found_at({"/mcp": down}))
    assert issubclass(TokenRejected, EnvironmentFault)


def test_a_full_server_of_mcp_is_one() -> None:
    assert asyncio.run(found_at({"/mcp": web.Response(status=429)}, "/mcp")) == "mcp"
