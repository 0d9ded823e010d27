"""`RemoteEnvironments`: checked when made, one session shared, environments only inside."""

import asyncio
from typing import Any

import pytest

from assay.environments import (
    CalculatorEnvironment,
    Environment,
    EnvironmentServer,
    RemoteEnvironments,
)
from assay.environments.remote.mcp import McpEnvironment
from assay.environments.remote.native import NativeEnvironment
from assay.environments.remote.openenv import OpenEnvEnvironment
from assay.errors import ConfigError, EnvironmentFault
from served_environments import Faulty

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
